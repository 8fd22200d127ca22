"""The kernel of training in NumPy: the oracle of the compiled one, with the same functions.

`kernel(compiled=False)` trains with this module.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from dbdp.learning import kernels, noisy, objectives
from dbdp.learning.losses import Loss
from dbdp.learning.rows import blocks, encoding
from dbdp.learning.state import State

_MAX_NORM2 = 1.0 - 2.0**-30  # packed rows have ‖x‖² ≤ (1 - 2⁻²³)²; a row above it is invalid
_COMPILED = kernels.compiled
noisy_updates = noisy.updates_of_any


@contextmanager
def kernel(*, compiled: bool) -> Iterator[None]:
    """Train by the compiled kernel, or by this module."""
    with patch.object(kernels, "compiled", _COMPILED if compiled else sys.modules[__name__]):
        yield


def add_rows(state: State, rows: np.ndarray, step_sizes: np.ndarray, averaged: int) -> None:
    """Add rows to the mini-batches in place; the last `averaged` of the iterates are summed."""
    features, labels = kernels.labelled(state.loss, state.target, rows, state.dimension)
    begin, end = 0, state.batch_size - state.filled
    for update, step in enumerate(step_sizes):
        _add_gradients(state, features[begin:end], labels[begin:end])
        kernels._update(state, step, averaged=update >= len(step_sizes) - averaged)
        begin, end = end, end + state.batch_size
    _add_gradients(state, features[begin:], labels[begin:])


def add_rows_of_each(states: list[State], rows: np.ndarray, steps: np.ndarray, averaged: np.ndarray) -> None:
    """Do as `add_rows` for each state."""
    for state, step_sizes, count in zip(states, steps, averaged.tolist(), strict=True):
        add_rows(state, rows, step_sizes, count)


def recursive_steps(
    loss: Loss,
    target: int,
    model: np.ndarray,
    direction: np.ndarray,
    rows: np.ndarray,
    step: float,
    regularisation: float,
) -> None:
    """Do as `kernels.recursive_steps`, in NumPy."""
    for features, label in zip(*kernels.labelled(loss, target, rows, len(model)), strict=True):
        moved = model - step * direction
        slopes = loss.derivative(np.array([features @ moved, features @ model]), np.full(2, label))
        direction *= 1 - step * regularisation
        direction += (slopes[0] - slopes[1]) * features
        model[:] = moved


def gradient_sum(
    loss: Loss, target: int, model: np.ndarray, rows: np.ndarray, clip: float, lengths: np.ndarray | None
) -> np.ndarray:
    """Return the sum of the clipped gradients."""
    features, labels = kernels.labelled(loss, target, rows, len(model))
    slopes = loss.derivative(features @ model, labels)
    with np.errstate(divide="ignore"):
        slopes *= np.minimum(1.0, clip / np.sqrt(objectives._squares(features, lengths) * slopes**2))
    return slopes @ features


def loss_sums(loss: Loss, target: int, models: np.ndarray, rows: np.ndarray, limit: float) -> np.ndarray:
    """Return the sum of the losses for each model, each loss at most `limit`."""
    features, labels = kernels.labelled(loss, target, rows, models.shape[1])
    losses = loss.value(models @ features.T, labels)
    losses = np.where(labels == 0.0, 0.0, losses) if loss.is_classifier else losses
    return np.minimum(losses, limit).sum(axis=1)


def unpack(rows: np.ndarray, dimension: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and which rows are valid; the others become the zero row."""
    features = rows[:, :dimension].astype(np.float64)
    labels = rows[:, -1].astype(np.float64)
    with np.errstate(all="ignore"):
        valid = (np.einsum("ij,ij->i", features, features) <= _MAX_NORM2) & np.isfinite(labels)
    return kernels.valid_or_zero(features, valid), kernels.valid_or_zero(labels, valid), valid


def pack(features: np.ndarray, labels: np.ndarray, rows: np.ndarray, shrink: float, least: float) -> None:
    """Write the packed rows of features, which change in place."""
    with np.errstate(all="ignore"):
        norms = encoding._norms(features, least)
        features *= (shrink / np.maximum(norms, 1.0))[:, None]
        rows[:] = blocks.encode(features, labels)
    rows[~np.isfinite(rows[:, -1]) | ~np.isfinite(norms)] = 0.0


def pack_vectors(
    encoder: encoding.VectorEncoder,
    raw: bytes,
    labels: np.ndarray,
    rows: np.ndarray,
    places: np.ndarray,
    _shrink: float,
    _least: float,
) -> None:
    """Write the packed rows of records to their places, by way of an array of features."""
    records = np.frombuffer(raw, encoding.record_layout(encoder))
    features = np.ones((len(records), encoder.width))
    features[:, : encoder.length] = records["elements"]
    with np.errstate(all="ignore"):
        features *= encoder.scales
        rows[places] = encoding._packed(encoder, features, records)


def _add_gradients(state: State, features: np.ndarray, labels: np.ndarray) -> None:
    state.gradient += state.loss.derivative(features @ state.model, labels) @ features
