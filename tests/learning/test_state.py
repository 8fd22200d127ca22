"""A state is decoded unchanged from its bytes; other bytes are refused."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic, Squared
from dbdp.learning.schedules import NONE, Averaging, Constant, Decreasing, InverseTime, Restarted, SquareRoot
from dbdp.learning.state import State

# where the header keeps its numbers
LOSS, SCHEDULE, DIMENSION, BATCH_SIZE, FIRST, INTERVAL, TARGET, FILLED, UPDATES, COUNTED = 4, 5, *range(8, 72, 8)
REGULARISATION, RADIUS, WIDTH, WEIGHT, STEP, VECTORS = 72, 80, 88, 96, 104, 128
LOGISTIC = Logistic()
PLAIN = ("loss", "schedule", "averaging", "batch_size", "regularisation", "radius", "target")
COUNTS = ("counted", "filled", "updates")
ARRAYS = ("model", "gradient", "total")

positive = st.floats(1e-6, 10)
losses = st.one_of(
    st.builds(Logistic, positive),
    st.builds(HuberSvm, st.floats(1e-6, 1), positive),
    st.builds(HuberRegression, positive),
    st.builds(Squared, positive),
)
schedules = st.one_of(
    st.builds(Constant, positive),
    st.builds(InverseTime, positive, positive),
    st.builds(Decreasing, positive, positive),
    st.builds(SquareRoot, positive, positive),
    st.builds(Restarted, positive, st.integers(1, 2**53), st.integers(0, 2**53)),
)
whole = st.integers(0, 2**62)
averagings = st.just(NONE) | st.builds(Averaging, whole.filter(bool), whole)


@st.composite
def states(draw):
    batch_size, dimension, averaging = draw(st.integers(1, 10**12)), draw(st.integers(1, 20)), draw(averagings)
    updates = draw(whole)

    def vector(length=dimension):
        return draw(hnp.arrays(np.float64, length, elements=st.floats(allow_nan=False)))

    return State(
        draw(losses),
        draw(schedules),
        batch_size,
        draw(st.floats(0, 10)),
        vector(),
        vector(),
        averaging,
        radius=draw(positive | st.just(math.inf)),
        target=draw(whole),
        total=vector(dimension if averaging.first else 0),
        counted=draw(st.integers(0, updates)),
        filled=draw(st.integers(0, batch_size - 1)),
        updates=updates,
        rest=vector(),
    )


def encoded(dimension=3, batch_size=4, averaging=NONE, loss=LOGISTIC):
    return State.initial(
        loss=loss,
        schedule=Constant(0.1),
        batch_size=batch_size,
        regularisation=0.0,
        dimension=dimension,
        averaging=averaging,
    ).encode()


def damaged(place, layout, value, **given):
    bytes_ = bytearray(encoded(**given))
    struct.pack_into(layout, bytes_, place, value)
    return bytes(bytes_)


@given(state=states())
def test_a_state_survives_its_bytes(state):
    decoded = State.decode(state.encode())
    assert decoded.encode() == state.encode()
    for name in (*PLAIN, *COUNTS):
        assert getattr(decoded, name) == getattr(state, name)
    for name in ARRAYS:
        assert getattr(decoded, name).tobytes() == getattr(state, name).tobytes()


def _exactly(value):
    """Tell 0.0 and -0.0 apart."""
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


@given(state=states(), other=states())
def test_two_states_with_the_same_bytes_are_the_same(state, other):
    names = (*PLAIN, *COUNTS, *ARRAYS)
    same = all(_exactly(getattr(state, name)) == _exactly(getattr(other, name)) for name in names)
    assert (state.encode() == other.encode()) == same


@given(state=states(), length=st.integers(0, 1000))
def test_a_state_cut_short_or_drawn_out_is_refused(state, length):
    value = state.encode()
    cut = value[:length] if length < len(value) else value + bytes(1 + length - len(value))
    with pytest.raises(ValueError, match="start with a new one"):
        State.decode(cut)


def test_a_decoded_state_can_be_advanced_in_place():
    state = State.decode(encoded(averaging=Averaging(1)))
    state.model += 1.0
    state.total += 2.0
    assert state.gradient.tolist() == [0.0, 0.0, 0.0]
    assert state.model.tolist() == [1.0, 1.0, 1.0]


def test_a_training_begins_at_zero():
    for averaging in (NONE, Averaging(1)):
        state = State.decode(encoded(averaging=averaging))
        assert (state.filled, state.updates, state.counted) == (0, 0, 0)
        assert not (state.model.any() or state.gradient.any() or state.total.any())
        assert (state.averaging, state.radius, state.target) == (averaging, math.inf, 0)


def test_no_bytes_are_spent_on_iterates_that_nobody_averages():
    assert len(encoded(dimension=5)) == VECTORS + 3 * 5 * 8
    assert len(encoded(dimension=5, averaging=Averaging(1))) == VECTORS + 4 * 5 * 8


def finished(averaging, *, counted):
    state = State.decode(encoded(averaging=averaging))
    state.model[:] = 7.0
    state.total[:] = 6.0
    state.counted = counted
    return state.result().tolist()


def test_the_result_is_the_mean_of_the_summed_iterates():
    assert finished(Averaging(1), counted=4) == [1.5] * 3
    assert finished(Averaging(9), counted=2) == [3.0] * 3
    for averaging, counted in (
        (NONE, 0),
        (Averaging(1, 4), 4),
        (Averaging(9), 0),
    ):  # no mean, restarts, none summed yet
        assert finished(averaging, counted=counted) == [7.0] * 3


DAMAGES = {  # place → what no state has there
    LOSS: (0, 200),
    SCHEDULE: (0, 200),
    DIMENSION: (0, -3, 2, 2**62),
    BATCH_SIZE: (0, -4),
    **{place: (1, -1) for place in (FIRST, INTERVAL, COUNTED)},
    TARGET: (-1,),
    FILLED: (4, -1),
    UPDATES: (-1,),
    RADIUS: (0.0, -1.0, math.nan),
    WEIGHT: (0.0, math.nan),
}


def test_a_damaged_state_is_refused():
    wrong = [(0, "<4s", b"dbs1")]
    for place, values in DAMAGES.items():
        wrong += [(place, "<B" if place < DIMENSION else "<q" if place < REGULARISATION else "<d", v) for v in values]
    for place, layout, value in wrong:
        with pytest.raises(ValueError, match=r"state|schedule|loss|averaging|positive_weight"):
            State.decode(damaged(place, layout, value))


def test_a_width_that_its_loss_cannot_have_is_refused():
    with pytest.raises(ValueError, match="width = 2"):
        State.decode(damaged(WIDTH, "<d", 2.0, loss=HuberSvm()))


def test_the_places_of_the_damage_above_are_the_right_ones():
    for place, name, value in (
        (BATCH_SIZE, "batch_size", 9),
        (TARGET, "target", 5),
        (FILLED, "filled", 3),
        (UPDATES, "updates", 7),
    ):
        assert getattr(State.decode(damaged(place, "<q", value)), name) == value
    for place, name, value in ((REGULARISATION, "regularisation", 0.5), (RADIUS, "radius", 0.25)):
        assert getattr(State.decode(damaged(place, "<d", value)), name) == value
    assert State.decode(damaged(FIRST, "<q", 8, averaging=Averaging(1))).averaging == Averaging(8)
    assert State.decode(damaged(INTERVAL, "<q", 8, averaging=Averaging(1))).averaging == Averaging(1, 8)
    assert State.decode(damaged(WIDTH, "<d", 0.25, loss=HuberSvm())).loss == HuberSvm(0.25)
    assert State.decode(damaged(WEIGHT, "<d", 0.25)).loss == Logistic(0.25)
    assert State.decode(damaged(STEP, "<d", 0.25)).schedule == Constant(0.25)
    assert State.decode(damaged(VECTORS, "<d", 0.5)).model[0] == 0.5


beginnings = st.tuples(st.integers(0, 6), st.integers(0, 7), st.binary(max_size=180))


@given(value=st.binary(max_size=200) | beginnings.map(lambda given: b"dbs3" + bytes([*given[:2], 0, 0]) + given[2]))
def test_no_bytes_raise_anything_but_a_value_error(value):
    try:
        State.decode(value)
    except ValueError as error:
        assert str(error)


@given(state=states(), place=st.integers(8, VECTORS - 1), value=st.binary(min_size=1, max_size=8))
def test_a_damaged_header_is_read_as_a_state_or_refused(state, place, value):
    bytes_ = bytearray(state.encode())
    bytes_[place : place + len(value)] = value
    try:
        again = State.decode(bytes(bytes_))
    except ValueError as error:
        assert str(error)
    else:
        assert State.decode(again.encode()).encode() == again.encode()
