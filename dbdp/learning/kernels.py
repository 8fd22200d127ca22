"""The mini-batch SGD step, by the compiled kernel.

Shapes: rows (n, stride) float32 as in `blocks`; model, gradient and sum of iterates (d,) float64.
"""

import math
from collections.abc import Sequence
from itertools import repeat

import numpy as np

from dbdp.learning.compiled import _kernel as compiled
from dbdp.learning.compiled.arithmetic import flushed
from dbdp.learning.losses import Loss
from dbdp.learning.rows import blocks
from dbdp.learning.state import State

_CACHED = 1 << 14  # places of models that are advanced together: with their gradients 256 kB


@flushed
def transition(state: State, rows: np.ndarray) -> State:
    """Advance the state by packed rows: one update for each full mini-batch.

    A mini-batch may begin in one call and end in a later one. A row without a valid label for this training
    contributes 0, as the zero row does.
    """
    ended, left = divmod(state.filled + len(rows), state.batch_size)
    averaged = _summed(state, ended)
    compiled.add_rows(state, rows, state.schedule.step_sizes(state.updates + 1, ended), averaged)
    state.counted += averaged
    state.updates += ended
    state.filled = left
    return state


def depth_of_sum(rows: int, dimension: int, *, in_pieces: bool = True) -> int:
    """Return D: the sum of a mini-batch of b = `rows` errs as if each gradient passed through D additions at most.

    `in_pieces` is false of NumPy's sums, in any order within a block. Proof (privacy.md §14.8). A call adds a block of
    B rows or fewer, as a tree over p pieces of 64: a gradient passes through 64 + 2(log₂p + 1) + 1 additions. Sums of
    N ≤ 5b/B + 3 calls, as in `Summed.by_blocks`, are added in two parts, by TwoSum, with an error of u|s| + γ²Σ|p| in
    each coordinate, γ = Nu/(1 - Nu) (Ogita, Rump & Oishi 2005, Prop. 4.5): as 1 + 1.01N²u additions more. A mini-batch
    of 1,024 rows or fewer, or a Poisson sample of so few, is one chain, which errs by no more than for D·b = 2²⁰. ∎
    """
    block = min(rows, blocks.rows_per_block(dimension))
    pieces, parts = -(-block // compiled.PIECE_ROWS), 5 * rows // block + 3
    within = compiled.PIECE_ROWS + 2 * pieces.bit_length() + 1 if in_pieces else block
    depth = within + 2 + math.ceil(1.01 * parts**2 * 2.0**-53)
    return min(rows, max(depth, math.ceil(compiled.SHORT_ROWS**2 / rows)))


def depth_of_score(dimension: int) -> int:
    """Return q, the operations through which a product passes in a score, or a square in a norm: of eight sums."""
    return blocks.stride_of(dimension) // blocks.LANES + 4


def transition_of_each(states: Sequence[State], rows: np.ndarray) -> list[State]:
    """Advance several states by the same rows, as `transition` does each, bit for bit.

    Where their mini-batches end together the rows are unpacked once for all models that fit the processor's cache, and
    all have labels of one kind.
    """
    alike = {(each.dimension, each.batch_size, each.filled, each.target > 0, each.loss.code) for each in states}
    most = _CACHED // rows.shape[1] if len(alike) == 1 and states[0].batch_size > 1 else 1
    if most <= 1 or len(states) == 1:
        return list(map(transition, states, repeat(rows)))
    for first in range(0, len(states), most):
        _advance_together(states[first : first + most], rows)
    return list(states)


@flushed
def _advance_together(states: Sequence[State], rows: np.ndarray) -> None:
    ended, left = divmod(states[0].filled + len(rows), states[0].batch_size)
    averaged = [_summed(state, ended) for state in states]
    compiled.add_rows_of_each(states, rows, _steps_of_each(states, ended), np.array(averaged, np.int64))
    for state, summed in zip(states, averaged, strict=True):
        state.counted += summed
        state.updates += ended
        state.filled = left


def _steps_of_each(states: Sequence[State], count: int) -> np.ndarray:
    """Return the step sizes of the next updates of each state, shape (states, count): most often they are the same."""
    kinds = {(id(state.schedule), state.updates): state for state in states}
    sizes = {kind: each.schedule.step_sizes(each.updates + 1, count) for kind, each in kinds.items()}
    return np.array([sizes[id(state.schedule), state.updates] for state in states])


@flushed
def terminate(state: State) -> State:
    """End an epoch: update with a last, short mini-batch; restart from the mean if a restart is due.

    The short sum too is divided by `batch_size`: dividing by its own size would multiply the
    sensitivity (privacy.md §1.4, layout A).
    """
    if state.filled:
        averaged = _summed(state, 1)
        _update(state, state.schedule.step_sizes(state.updates + 1, 1)[0], averaged=averaged > 0)
        state.counted += averaged
        state.updates += 1
        state.filled = 0
    interval = state.averaging.interval
    if interval and state.counted and state.updates % interval == 0:
        state.model = state.total / state.counted
        state.total, state.counted = np.zeros_like(state.total), 0
    return state


@flushed
def count_errors(models: np.ndarray, rows: np.ndarray) -> int:
    """Return how many packed rows the models classify wrongly.

    One model of `models`, shape (K, d), is wrong if label · score ≤ 0, several are if the largest score is not that of
    the label's class 1, …, K. An invalid row of `rows`, shape (n, stride), counts as an error.
    """
    features, labels, _ = unpacked(rows, models.shape[1])
    scores = features @ models.T
    right = labels * scores[:, 0] > 0 if len(models) == 1 else np.argmax(scores, axis=1) + 1 == labels
    return len(rows) - int(np.count_nonzero(right))


@flushed
def recursive_steps(
    loss: Loss,
    target: int,
    model: np.ndarray,
    direction: np.ndarray,
    rows: np.ndarray,
    *,
    step: float,
    regularisation: float,
) -> None:
    """Change a model and a direction, both (d,), in place: one step of SARAH for each row, in their order.

    A step is model ← model - step·direction; then the direction changes by as much as the gradient of the row's loss,
    with regularisation/2·‖model - any centre‖², has changed by that step (Nguyen, Liu, Scheinberg & Takáč 2017).
    """
    compiled.recursive_steps(loss, target, model, direction, np.ascontiguousarray(rows), step, regularisation)


def labelled(loss: Loss, target: int, rows: np.ndarray, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of a training; an invalid row becomes the zero row.

    Without a target the labels are -1 and +1, for regressions any number between them. With one they
    are the whole numbers from 1 on: +1 for the target, -1 for the others.
    """
    features, labels, valid = unpacked(rows, dimension)
    if target:
        valid &= (labels >= 1.0) & (labels == np.floor(labels))
        labels = np.where(labels == target, 1.0, -1.0)
    elif loss.is_classifier:
        valid &= np.abs(labels) == 1.0
    else:
        valid &= np.abs(labels) <= 1.0
    return valid_or_zero(features, valid), valid_or_zero(labels, valid)


def valid_or_zero(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return float64 rows (n, …), with 0 in place of invalid ones, NaN too: by masks, in the same time for all rows."""
    masks = -valid.astype(np.int64).reshape(-1, *[1] * (values.ndim - 1))
    return (values.view(np.int64) & masks).view(np.float64)


def unpacked(rows: np.ndarray, dimension: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and which rows are valid; the others become the zero row.

    Packed rows are float32, shape (n, stride); features (n, d) and labels (n,) are float64, valid (n,) is bool.
    """
    features, labels, valid = compiled.unpack(np.ascontiguousarray(rows), dimension)
    return features, labels, valid


def _update(state: State, step: float, *, averaged: bool) -> None:
    """Set model ← Π(model - step (gradient / batch_size + λ model)) and gradient ← 0."""
    state.model *= 1.0 - step * state.regularisation
    state.model -= (step / state.batch_size) * (state.gradient + state.rest)
    state.gradient[:] = state.rest[:] = 0.0
    if state.radius < math.inf:
        norm = math.sqrt(math.fsum(state.model * state.model))
        state.model *= state.radius / max(norm, state.radius)  # 1 within the ball
    if averaged:
        state.total += state.model


def _summed(state: State, updates: int) -> int:
    """Return how many of the next iterates are summed; they are the last ones."""
    former = state.updates
    return state.averaging.summed(former + updates) - state.averaging.summed(former)
