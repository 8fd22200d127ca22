"""No value of a row decides which instructions a kernel runs, nor how numbers below 2⁻¹⁰²² are treated elsewhere."""

import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_kernel import kernel
from pairs import pairwise

from dbdp.learning import kernels, noisy, second_moments
from dbdp.learning.compiled import arithmetic
from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic, Loss, Squared
from dbdp.learning.networks.architecture import Network
from dbdp.learning.noisy import NoisyState, NoisyTraining, UpdateNoise
from dbdp.learning.objectives import Linear, Softmax
from dbdp.learning.rows import blocks, encoding
from dbdp.learning.schedules import Constant
from dbdp.learning.state import State

UNIT = mpmath.mpf(2) ** -53
LEAST = 2.0**-1022
DENORMAL = 2.0**-1060
LOSSES: list[Loss] = [Logistic(), HuberSvm(0.5), HuberRegression(0.2), Squared(0.8)]

# --- exponentials ---------------------------------------------------------------------------------------------

HALVES = [k * math.log(2) / 2 for k in range(-2042, 2043)]  # multiples of ln 2 and the borders between them
EDGES = [0.0, -0.0, 1e-300, -1e-300, 5e-324, 2.0**-53, -(2.0**-53), 708.0, -708.0, math.log(2), 1.0, -1.0]
DENSE = np.concatenate([np.linspace(-708, 708, 4000), np.linspace(-1, 1, 4000), HALVES, EDGES])
DENSE = np.unique(np.concatenate([DENSE, np.nextafter(DENSE, np.inf), np.nextafter(DENSE, -np.inf)]).clip(-708, 708))


def error(computed: float | mpmath.mpf, exact: mpmath.mpf) -> float:
    """The relative error in units of 2⁻⁵³."""
    return float(abs(mpmath.mpf(computed) - exact) / exact / UNIT)


def test_an_exponential_is_within_its_bound_by_its_last_term():
    """An exponential is within its bound and a series cut earlier would not be."""
    with mpmath.workprec(120):
        errors = [error(result, mpmath.exp(x)) for x, result in zip(DENSE, arithmetic.exponential(DENSE), strict=True)]
        assert max(errors) <= 4
        r = mpmath.log(2) / 2
        assert error(sum(r**k / math.factorial(k) for k in range(12)), mpmath.exp(r)) > 4


def test_log1p_of_an_exponential_is_within_its_bound():
    below = DENSE[DENSE <= 0]
    with mpmath.workprec(1200):
        result = arithmetic.log1p_exponential(below)
        errors = [error(one, mpmath.log1p(mpmath.exp(x))) for x, one in zip(below[::7], result[::7], strict=True)]
    assert max(errors) <= 10


@given(st.floats(-708, 708))
def test_an_exponential_of_any_argument_is_within_its_bound(x):
    with mpmath.workprec(120):
        assert error(arithmetic.exponential(np.array([x]))[0], mpmath.exp(x)) <= 4


def test_an_exponential_beyond_its_reach_is_zero_or_infinite():
    far = np.array([709.0, -709.0, 1e300, -1e300, np.inf, -np.inf, np.nan])
    assert np.array_equal(
        arithmetic.exponential(far), np.array([np.inf, 0, np.inf, 0, np.inf, 0, np.nan]), equal_nan=True
    )
    assert np.array_equal(arithmetic.log1p_exponential(far[1::2]), [0, 0, 0])
    assert np.isnan(arithmetic.log1p_exponential(np.array([np.nan, -np.nan]))).all()


@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 2), ()])
def test_every_shape_is_taken(shape):
    result = arithmetic.exponential(np.zeros(shape))
    assert result.shape == shape
    assert (result == 1.0).all()


# --- numbers below 2⁻¹⁰²² -------------------------------------------------------------------------------------


def keeps_denormals() -> bool:
    """Whether this thread computes with them: what a server's own functions rely on."""
    return bool((np.full(100, LEAST) * 0.5 != 0.0).all()) and float("5e-324") * 1.0 != 0.0


def test_a_flushed_function_has_no_denormals_inside_only():
    """Within a flushed function there are none and behind it there are."""
    seen = []

    @arithmetic.flushed
    def look(fails: bool) -> None:
        seen.append(keeps_denormals())
        if fails:
            raise ValueError("it fails")

    assert keeps_denormals()
    look(False)
    assert keeps_denormals()
    with pytest.raises(ValueError, match="it fails"):
        look(True)
    assert keeps_denormals()
    assert seen == [False, False]


def packed(count: int, dimension: int, *, is_real: bool = False) -> np.ndarray:
    random = np.random.default_rng()
    features = random.normal(size=(count, dimension))
    features *= 0.99 / np.linalg.norm(features, axis=1, keepdims=True)
    labels = random.uniform(-1, 1, count) if is_real else random.choice([-1.0, 1.0], count)
    return blocks.encode(features, labels)


def initial(loss: Loss, dimension: int, batch_size: int = 4, radius: float = math.inf) -> State:
    return State.initial(
        loss=loss,
        schedule=Constant(0.3),
        batch_size=batch_size,
        regularisation=0.01,
        dimension=dimension,
        radius=radius,
    )


def noisy_state(loss: Loss) -> NoisyState:
    return NoisyState.initial(
        NoisyTraining(Linear(loss, 9), Constant(0.3), 4.0, 4, 0.01, 1.0, UpdateNoise("none", 1, 2.0**-40))
    )


def silent_draw(_law: str, _steps: int, updates: int, parameters: int) -> np.ndarray:
    assert keeps_denormals()  # the exact samplers are no part of it
    return np.zeros((updates, parameters), np.int64)


NETWORK = Network(9, 1, False, 1.0, (), (3,))
ENTRIES: dict[str, Callable[[np.ndarray], object]] = {
    "transition": lambda rows: kernels.transition(initial(Logistic(), 9), rows),
    "transition_of_each": lambda rows: kernels.transition_of_each(
        [initial(Logistic(), 9), initial(Logistic(), 9)], rows
    ),
    "terminate": lambda rows: kernels.terminate(kernels.transition(initial(Logistic(), 9, 1000), rows)),
    "count_errors": lambda rows: kernels.count_errors(np.ones((1, 9)), rows),
    "noisy": lambda rows: noisy.terminate(
        noisy.transition(noisy_state(Logistic()), rows, draw=silent_draw), draw=silent_draw
    ),
    "gradient_sum": lambda rows: Linear(Logistic(), 9).gradient_sum(np.ones(9), rows),
    "loss_sums": lambda rows: Linear(Logistic(), 9).loss_sums(np.ones((1, 9)), rows),
    "a softmax's gradient_sum": lambda rows: Softmax(9, 2).gradient_sum(np.ones(18), rows, clip=1.0),
    "a softmax's loss_sums": lambda rows: Softmax(9, 2).loss_sums(np.ones((1, 18)), rows),
    "second_moment": lambda rows: second_moments.SecondMoment(9).of_rows(rows),
    "lengths": second_moments.lengths_by(np.eye(9)),
    "a network's gradient_sum": lambda rows: NETWORK.gradient_sum(NETWORK.initial(), rows, clip=1.0),
    "a network's loss_sums": lambda rows: NETWORK.loss_sums(NETWORK.initial()[None], rows),
    "pack": lambda rows: encoding.pack(rows[:, :9].astype(float), rows[:, -1].astype(float)),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.attack("instructions")
def test_no_entry_leaves_the_processor_in_another_state(entry):
    assert keeps_denormals()
    ENTRIES[entry](packed(30, 9))
    assert keeps_denormals()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.attack("instructions")
def test_a_model_of_denormals_is_zero_after_a_step(compiled, batch_size):
    state = initial(HuberRegression(), 9, batch_size)
    state.model[:] = DENORMAL
    rows = blocks.encode(np.full((batch_size, 9), 0.25), np.zeros(batch_size))
    with kernel(compiled=compiled):
        assert not kernels.transition(state, rows).model.any()


def test_packed_rows_hold_no_denormals():
    features = np.array([[1e-40, 0.5, 1e-310], [2.0**-149, 2.0**-127, 2.0**-126]])
    for compiled in (True, False):
        with kernel(compiled=compiled):
            rows = encoding.pack(features.copy(), np.ones(2))
        assert not ((rows != 0) & (np.abs(rows) < np.finfo(np.float32).tiny)).any()
        assert rows[0, 1] > 0.49


# --- no row is skipped ----------------------------------------------------------------------------------------


def stepped(state: State, rows: np.ndarray) -> np.ndarray:
    kernels.transition(state, rows)
    return np.concatenate([state.model, state.gradient])


@pairwise(
    loss=LOSSES,
    batch_size=[1, 3, 4, 50],
    bad=[(0.3, 7.5), (0.3, np.nan), (0.3, np.inf), (np.nan, 1.0), (np.inf, 1.0), (9.0, 1.0)],
)
def test_a_row_that_counts_for_nothing_is_the_zero_row(loss, batch_size, bad):
    rows = packed(40, 9, is_real=not loss.is_classifier)
    others = rows.copy()
    rows[::3, :9], rows[::3, -1] = bad
    others[::3] = 0.0
    others[::3, -1] = 7.5  # no label: the zero row of a regression has one
    result = [stepped(initial(loss, 9, batch_size), table) for table in (rows, others)]
    assert result[0].tobytes() == result[1].tobytes()
    assert result[0].any()


@pytest.mark.parametrize("batch_size", [1, 4])
def test_rows_with_slope_zero_leave_the_model_bit_for_bit(batch_size):
    """Saturated rows of a hinge; the control is one that is not."""
    state, rows = initial(HuberSvm(0.5), 9, batch_size), blocks.encode(np.full((8, 9), 0.3), np.ones(8))
    state.model[:] = 10.0
    state.regularisation = 0.0
    before = state.model.copy()
    assert kernels.transition(state, rows).model.tobytes() == before.tobytes()
    rows[5, -1] = -1.0
    assert kernels.transition(state, rows).model.tobytes() != before.tobytes()


# --- the stream of instructions -------------------------------------------------------------------------------

PROGRAM, DIMENSION, ROWS = Path(__file__).with_name("even_time.c"), 21, 61
HAS_TOOLS = shutil.which("gcc") is not None and shutil.which("valgrind") is not None
TABLES: dict[str, Callable[[np.ndarray, np.ndarray], object]] = {
    "ordinary": lambda features, labels: None,
    "one row replaced": lambda features, labels: features[0].__imul__(-1),
    "all labels in the middle": lambda features, labels: labels.fill(0.0),
    "one of them is not": lambda features, labels: (labels.fill(0.0), labels.put(3, 1.0)),
    "zero rows": lambda features, labels: (features.fill(0.0), labels.fill(0.0)),
    "no numbers": lambda features, labels: (features[::2].fill(np.nan), labels[1::2].fill(np.inf)),
    "denormals": lambda features, labels: features.__imul__(1e-310),
    "huge": lambda features, labels: features.__imul__(1e300),
    "tiny": lambda features, labels: features.__imul__(1e-30),
    "one huge row": lambda features, labels: features[7].fill(1e308),
    "classes": lambda features, labels: labels.put(range(ROWS), np.arange(ROWS) % 4 + 1),
    "labels of no kind": lambda features, labels: labels.fill(7.5),
    "rows alike": lambda features, labels: (features.fill(0.2), labels.fill(1.0)),
}


def compiled_in(folder: Path, *flags: str) -> str:
    """The kernels, compiled as the extension is."""
    path = str(folder / "kernels")
    command = ["gcc", "-O3", "-fno-math-errno", "-w", *flags, "-o", path, str(PROGRAM), "-lm"]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="module", params=[[], ["-DCLONED="]], ids=["this processor's copy", "every processor's copy"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The kernels, as one copy for each level of x86-64, or as the one that runs everywhere."""
    return compiled_in(tmp_path_factory.mktemp("even"), *request.param)


@pytest.fixture(scope="module")
def ordinary(program: str) -> tuple[int, ...]:
    return counted(program, ROWS, TABLES["ordinary"])


def counted(program: str, rows: int, change: Callable[[np.ndarray, np.ndarray], object]) -> tuple[int, ...]:
    """Instructions, branches and branches that a predictor misses, of all kernels, by callgrind."""
    random = np.random.RandomState(1)
    features, labels = random.normal(size=(rows, DIMENSION)), random.choice([-1.0, 1.0], rows)
    change(features, labels)
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=run"]
    command += ["--branch-sim=yes", program, str(rows)]
    table = np.column_stack([features, labels]).tobytes()
    # The environment is on the stack: with pytest's, which names the test, the simulated predictor has other addresses.
    report = subprocess.run(
        command, input=table, check=True, capture_output=True, env={"PATH": os.defpath}
    ).stderr.decode()
    return tuple(int(number) for number in re.search(r"Collected : ([\d ]+)", report)[1].split())  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TOOLS, reason="gcc and valgrind, which count the instructions, are not here")
@pytest.mark.parametrize("table", [table for table in TABLES if table != "ordinary"])
@pytest.mark.attack("instructions")
def test_every_table_takes_the_same_instructions(program, ordinary, table):
    assert ordinary[0] > 100_000
    assert counted(program, ROWS, TABLES[table]) == ordinary


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TOOLS, reason="gcc and valgrind, which count the instructions, are not here")
@pytest.mark.control("instructions")
def test_a_single_row_that_is_skipped_changes_the_counts(tmp_path):
    program = compiled_in(tmp_path, "-DSKIPS")
    result = [counted(program, ROWS, TABLES[table]) for table in ("all labels in the middle", "one of them is not")]
    assert result[0][0] < result[1][0]
    assert result[0][1] < result[1][1]
