"""The aggregates refuse any bytes or compute with them, and read no byte outside them."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from watch import SHARES

from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic
from dbdp.learning.networks.architecture import Network
from dbdp.learning.noisy import Noise, NoisyState, NoisyTraining
from dbdp.learning.objectives import Linear
from dbdp.learning.rows import blocks
from dbdp.learning.schedules import Averaging, Constant, InverseTime, Restarted
from dbdp.learning.state import State

DIMENSION = 4
WORDS_64 = [0, 1, -1, 2, 7, 2**31, 2**62, -(2**63), 2**63 - 1, 10**6]
DOUBLES = [0.0, -1.0, float("nan"), float("inf"), 1e308, 5e-324, 1.0]
STATES = [
    State.initial(
        loss=loss, schedule=schedule, batch_size=size, regularisation=0.1, dimension=DIMENSION, **more
    ).encode()
    for loss, schedule, size, more in (
        (Logistic(), Constant(0.1), 2, {}),
        (HuberSvm(0.1), InverseTime(1.0, 0.1), 1, {"averaging": Averaging(1), "radius": 1.0}),
        (HuberRegression(0.5), Restarted(0.1, 3, 2), 3, {"averaging": Averaging(1, 6)}),
        (Logistic(), Constant(0.1), 2, {"target": 2}),
    )
]
NETWORK = Network(DIMENSION, 1, True, 1.0, (), (2,))
OBJECTIVES = [Linear(Logistic(), DIMENSION), Linear(Logistic(), DIMENSION, 3), NETWORK]
STATES += [STATES[0] * 3, STATES[0] + STATES[1]]
NOISY_STATES = [
    NoisyState.initial(
        NoisyTraining(objective, Constant(0.1), 2.0, rows, 0.0, 1.0, Noise(law, 1000, 1e-3), moments=moments)
    ).encode()
    for objective, rows, law, moments in (
        (OBJECTIVES[0], 0, "gaussian", None),
        (OBJECTIVES[0], 2, "spherical_laplace", (0.9, 0.999, 1e-8)),
        (OBJECTIVES[1], 2, "gaussian", None),
        (NETWORK, 0, "gaussian", None),
    )
]


@st.composite
def damaged(draw: st.DrawFn, sound: list[bytes]) -> bytes:
    """One of the values with a word replaced, a piece cut out, or more at its end; or anything."""
    value = bytearray(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, max(0, len(value) - 8)) | st.integers(0, len(value) // 8).map(lambda n: 8 * n))
        words = [struct.pack("<q", word) for word in WORDS_64] + [struct.pack("<d", number) for number in DOUBLES]
        value[place : place + 8] = draw(st.sampled_from(words) | st.binary(min_size=8, max_size=8))
    fate = draw(st.integers(0, 9))
    if fate == 0:
        return bytes(value[: draw(st.integers(0, len(value)))])
    return bytes(value) + draw(st.binary(max_size=16)) if fate == 1 else bytes(value)


@st.composite
def packed(draw: st.DrawFn) -> bytes:
    """A block of a few rows of any numbers, mostly complete."""
    stride = blocks.stride_of(DIMENSION)
    numbers = st.sampled_from([0.0, 0.5, 1.0, -1.0, 2.0, 3.0, 1e38, float("nan"), float("inf"), 1e-45])
    rows = draw(st.lists(numbers, max_size=4 * stride))
    cut = len(rows) if draw(st.integers(0, 9)) == 0 else len(rows) // stride * stride
    return np.array(rows[:cut], np.float32).tobytes()


MODELS = st.lists(st.sampled_from(DOUBLES), min_size=1, max_size=13).map(lambda numbers: np.array(numbers).tobytes())
MODELS |= st.just(np.zeros(DIMENSION).tobytes()) | st.just(np.zeros(3 * DIMENSION).tobytes()) | st.binary(max_size=20)
SMALL = st.sampled_from([1, 3, 4, 0, -1, 2**31 - 1, -(2**31)])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """An objective as JSON, perhaps with a value of another kind."""
    data: dict[str, Any] = dict(draw(st.sampled_from(OBJECTIVES)).as_data())
    if draw(st.integers(0, 2)) == 0:
        odd = st.sampled_from([0, -1, -3, 2**31, 2**62, 1.5, None, "a", [], [1, 2], True, 1e308])
        data[draw(st.sampled_from(sorted(data)))] = draw(odd)
    return json.dumps(data)


CALLS: dict[str, list[st.SearchStrategy[Any]]] = {
    "sgd_transition(%s::bytea, %s::bytea, %s::bytea)": [st.none() | damaged(STATES), packed(), damaged(STATES)],
    "sgd_terminate(%s::bytea)": [damaged(STATES)],
    "noisy_transition(%s::bytea, %s::bytea, %s::bytea)": [
        st.none() | damaged(NOISY_STATES),
        packed(),
        damaged(NOISY_STATES),
    ],
    "noisy_terminate(%s::bytea)": [damaged(NOISY_STATES)],
    "gradient_transition(%s::bytea, %s::bytea, %s::bytea, %s, %s::float8)": [
        st.none() | MODELS,
        packed(),
        MODELS,
        texts(),
        st.sampled_from(DOUBLES),
    ],
    "loss_transition(%s::bytea, %s::bytea, %s::bytea, %s, %s::float8)": [
        st.none() | MODELS,
        packed(),
        MODELS,
        texts(),
        st.sampled_from(DOUBLES),
    ],
    "label_transition(%s::int8[], %s::bytea, %s::int, %s::int)": [
        st.none() | st.lists(st.sampled_from(WORDS_64), max_size=4),
        packed(),
        SMALL,
        SMALL,
    ],
    "count_errors_transition(%s::int8, %s::bytea, %s::bytea, %s::int)": [
        st.sampled_from([*WORDS_64, None]),
        packed(),
        MODELS,
        SMALL,
    ],
}
ASKED = st.sampled_from(list(CALLS)).flatmap(lambda name: st.tuples(st.just(name), st.tuples(*CALLS[name])))


@pytest.mark.parametrize("share", SHARES)
def test_damaged_bytes_are_refused_or_computed_with(watch, share):
    watch.allowed = ("38000", "22003")
    watch.connection.execute("set statement_timeout = '120s'")

    def check(case: tuple[str, tuple[Any, ...]]) -> None:
        call, given = case
        watch.attempt(f"select dbdp_internal.{call}", given)

    share.cases(4000, ASKED, check)
    watch.saw_both()
