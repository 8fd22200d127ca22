"""Sums of long mini-batches: small depth within a call, and no rounding from call to call (privacy.md §14.8)."""

from fractions import Fraction

import numpy as np
import pytest

from dbdp.learning import kernels, noisy
from dbdp.learning.losses import Logistic
from dbdp.learning.noisy import NoisyState, NoisyTraining, UpdateNoise
from dbdp.learning.objectives import Linear
from dbdp.learning.rows import blocks
from dbdp.learning.schedules import Constant
from dbdp.learning.state import State

GRID = 2.0**-20
FAR = 2.0**64  # a sum so large that whole gradients are below half of its last bit
NEVER = 10**9  # rows of a mini-batch that no test fills
KINDS = ("once", "several", "noisy", "classes")  # noise at the end, also of models together, or in every update


def initial(kind, batch_size):
    if kind in ("once", "several"):
        facts = {"batch_size": batch_size, "regularisation": 0.0, "dimension": 1}
        count = 2 if kind == "several" else 1
        return [State.initial(loss=Logistic(), schedule=Constant(1.0), **facts) for _ in range(count)]
    objective = Linear(Logistic(), 1, 2 if kind == "classes" else 1)
    noise = UpdateNoise("gaussian", 1, GRID)
    return [NoisyState.initial(NoisyTraining(objective, Constant(1.0), 1.0, batch_size, 0.0, np.inf, noise))]


def silent(_law, _steps, updates, parameters):
    return np.zeros((updates, parameters), np.int64)


def advanced(states, rows):
    if len(states) > 1:
        return kernels.transition_of_each(states, rows)
    [state] = states
    return [kernels.transition(state, rows) if isinstance(state, State) else noisy.transition(state, rows, draw=silent)]


def summed(state):
    return Fraction(float(state.gradient[0])) + Fraction(float(state.rest[0]))


def few(count):
    return blocks.encode(np.linspace(0.1, 0.9, count).astype(np.float32)[:, None], np.ones(count))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [3, 200])
def test_a_sum_over_many_calls_loses_nothing(kind, count):
    """The control is the sum of doubles, which does not move at all."""
    [alone, *_] = advanced(initial(kind, NEVER), few(count))
    states = initial(kind, NEVER)
    for state in states:
        state.gradient[:] = FAR
    for _ in range(10):
        states = advanced(states, few(count))
        states = [type(state).decode(state.encode()) for state in states]
    for state in states:
        assert abs(summed(state) - Fraction(FAR) - 10 * summed(alone)) < Fraction(1, 10**10)
    assert FAR + 10 * float(alone.gradient[0]) == FAR
    assert abs(alone.gradient[0]) > 0.5


ROWS = 4096  # of one mini-batch and one call
TINY = 2.0**-57  # a row's only coordinate: its gradient is lost where it is added to that of a row of 1/2


def unequal():
    features = np.full((ROWS, 1), TINY, np.float32)
    features[0] = 0.5
    return blocks.encode(features, np.full(ROWS, -1.0))


@pytest.mark.parametrize("kind", ["once", "several", "noisy"])
def test_a_gradient_passes_through_few_additions_in_a_call(kind):
    """The control is one chain of additions."""
    exact = 0.25 + (ROWS - 1) * TINY / 2
    [state, *_] = advanced(initial(kind, NEVER), unequal())
    assert abs(float(state.gradient[0]) - exact) <= 80 * TINY
    chain = 0.25
    for _ in range(ROWS - 1):
        chain += TINY / 2
    assert exact - chain > 1000 * TINY


@pytest.mark.parametrize("kind", ["once", "several"])
@pytest.mark.parametrize("borders", [(), (1, 700), (1000, 1030), (2000,)])
def test_the_parts_of_a_sum_are_added_before_the_step(kind, borders):
    rows, states = few(ROWS), initial(kind, ROWS)
    for part in np.split(rows, borders):
        states = advanced(states, np.ascontiguousarray(part))
    for state in states:
        assert float(state.model[0]) == pytest.approx(0.5 * float(rows[:, 0].astype(float).mean()), rel=1e-14)
        assert not state.gradient.any()
        assert not state.rest.any()


@pytest.mark.parametrize("begun", [1, 1500])
def test_a_short_last_mini_batch_has_both_parts(begun):
    [state] = advanced(initial("once", ROWS), few(begun))
    state.rest += 1.0
    gradient = float(state.gradient[0] + state.rest[0])
    assert kernels.terminate(state).model[0] == -gradient / ROWS


@pytest.mark.parametrize("kind", ["noisy", "classes"])
def test_noise_is_added_to_both_parts_of_a_sum(kind):
    [state] = initial(kind, NEVER)
    state.gradient[:], state.rest[:], state.filled = 3 * GRID, 4 * GRID, 1
    state = noisy.terminate(state, draw=silent)
    assert (state.model == -7 * GRID).all()
    assert not state.rest.any()


@pytest.mark.parametrize("kind", ["noisy", "classes"])
@pytest.mark.parametrize("drawn", [3, 2**40 + 1])
def test_noise_on_a_very_long_sum_is_the_exact_one_rounded(kind, drawn):
    """A sum of more than 2⁵² steps of the grid: what is noisy is rounded, not what is noised."""
    [state] = initial(kind, NEVER)
    state.gradient[:], state.filled = (2**53 + 2) * GRID, 1
    state = noisy.terminate(state, draw=lambda _law, _steps, updates, p: np.full((updates, p), drawn))
    assert float(-state.model[0]) / GRID == float(2**53 + 2 + drawn)


def test_depth_does_not_grow_with_the_rows():
    """Of NumPy's sums within a block it is that of the block."""
    assert kernels.depth_of_sum(1024, 20) == 1024
    assert kernels.depth_of_sum(4096, 20) == 256  # for the chain of a Poisson sample of 1,024 rows
    assert kernels.depth_of_sum(10**5, 20) < 90
    assert kernels.depth_of_sum(10**12, 20) < 130
    assert kernels.depth_of_sum(10**11, 20, in_pieces=False) < blocks.rows_per_block(20) + 10
    for rows in (1, 1000, 1025, 10_000, 20_000, 10**6):
        assert kernels.depth_of_sum(rows, 20) * rows >= min(rows, kernels.compiled.SHORT_ROWS) ** 2
