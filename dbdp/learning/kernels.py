"""The mini-batch SGD step: a reference in NumPy, and the compiled kernel that it holds to account.

Shapes: rows (n, stride) float32 as in `blocks`, model and gradient (d,) float64.
"""

import numpy as np

from dbdp.learning.losses import Logistic
from dbdp.learning.state import State

try:
    from dbdp.learning import _kernel as compiled
except ImportError:  # built without a C compiler: the same results, some three times slower
    compiled = None

COMPILED = compiled is not None
_MAX_NORM2 = 1.0 - 2.0**-30  # packed rows have ‖x‖² ≤ (1 - 2⁻²³)²; anything above is no such row


def transition(state: State, rows: np.ndarray) -> State:
    """Advance the state by packed rows: one update whenever a mini-batch is full.

    A mini-batch may begin in one call and end in a later one.
    """
    ended = (state.filled + len(rows)) // state.batch_size
    step_sizes = state.schedule.step_sizes(state.updates + 1, ended)
    add_rows = compiled.add_rows if COMPILED else add_rows_reference
    state.filled = add_rows(
        state.loss,
        rows,
        state.model,
        state.gradient,
        state.filled,
        step_sizes,
        state.batch_size,
        state.regularisation,
    )
    state.updates += ended
    return state


def terminate(state: State) -> State:
    """Make the update of a last, short mini-batch: its sum too is divided by `batch_size`.

    Dividing by its own size would multiply the sensitivity (privacy.md §1.4, layout A).
    """
    if state.filled:
        step = state.schedule.step_sizes(state.updates + 1, 1)[0]
        _update(state.model, state.gradient, step, state.batch_size, state.regularisation)
        state.filled = 0
        state.updates += 1
    return state


def add_rows_reference(
    loss: Logistic,
    rows: np.ndarray,
    model: np.ndarray,
    gradient: np.ndarray,
    filled: int,
    step_sizes: np.ndarray,
    batch_size: int,
    regularisation: float,
) -> int:
    """Add rows to the mini-batches, in place; return the rows in the unfinished one.

    Parameters
    ----------
    rows : (n, stride) float32
    model, gradient : (d,) float64, changed in place
    filled : rows that the gradient already holds
    step_sizes : one for each mini-batch that ends within these rows
    """
    features, labels = _valid(rows, len(model))
    begin = 0
    for step in step_sizes:
        end = begin + batch_size - filled
        gradient += _gradient_sum(loss, features[begin:end], labels[begin:end], model)
        _update(model, gradient, step, batch_size, regularisation)
        begin, filled = end, 0
    gradient += _gradient_sum(loss, features[begin:], labels[begin:], model)
    return filled + len(rows) - begin


def _valid(rows: np.ndarray, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels in float64; whatever is no packed row becomes the zero row."""
    features = rows[:, :dimension].astype(np.float64)
    labels = rows[:, -1].astype(np.float64)
    with np.errstate(all="ignore"):
        norms = np.einsum("ij,ij->i", features, features)
        valid = (np.abs(labels) == 1.0) & (norms <= _MAX_NORM2)
    features[~valid] = 0.0
    labels[~valid] = 0.0
    return features, labels


def _gradient_sum(loss: Logistic, features: np.ndarray, labels: np.ndarray, model: np.ndarray) -> np.ndarray:
    margins = labels * (features @ model)
    return (labels * loss.derivative(margins)) @ features


def _update(model: np.ndarray, gradient: np.ndarray, step: float, batch_size: int, regularisation: float) -> None:
    model *= 1.0 - step * regularisation
    model -= (step / batch_size) * gradient
    gradient[:] = 0.0
