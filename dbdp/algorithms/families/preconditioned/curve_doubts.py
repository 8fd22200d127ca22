"""How far the noise of the columns' moments may have moved the curves of a model: rows of the root of its noise.

privacy.md §24.9: post-processing, and an estimate. The descent goes as far in a direction as its rows and its prior
allow, and both come from noisy moments. A curve that is learned from the released moment is compared with the ones
that are learned from moments with one deviation of noise more in each of their numbers. Shapes: a moment is
(width, width), the values of curves (K, width), and the rows of a root (m, width).
"""

import math

import numpy as np

from dbdp.algorithms.families.preconditioned.column_bases import (
    AdditivePreconditioner,
    Basis,
    bases_of_number,
    other_basis,
    positive_part,
)
from dbdp.learning.rows.column_blocks import CURVE, ColumnBlock, RowBlocks

FACTOR = 1.5  # the released curve bends less than the rows say, and so do those that are compared with it


def moment_root(
    rows_of: RowBlocks, way: AdditivePreconditioner, models: np.ndarray, noise: float, passes: int
) -> np.ndarray:
    """Return rows (m, d) of the root of a model's noise, from the moments of each curve, for all curves.

    `models` (K, d) are over packed rows, `noise` the deviation of the steps' noise in x̃/s, and `passes` their number.
    A row is of the model that moves most.
    """
    found, start = [np.zeros((0, models.shape[1]))], 0
    unit = noise / way.scale * rows_of.radius
    for block, moment in zip(rows_of.blocks, way.found.columns, strict=True):
        end = start + block.width
        if block.kind == CURVE:
            own = _of_curve(block, moment, way, models[:, start:end], passes, unit)
            found.append(np.zeros((len(own), models.shape[1])))
            found[-1][:, start:end] = own
        start = end
    return np.vstack(found)


def _of_curve(
    block: ColumnBlock, moment: np.ndarray, way: AdditivePreconditioner, curves: np.ndarray, passes: int, unit: float
) -> np.ndarray:
    """Return how far a deviation of noise in each number of the moment moves the curve: rows of differences.

    A number that other noise had made a line, or a curve, has the difference from that too, and in the directions of a
    curve the noise of steps. Steps of 1 against a curvature of h come about as far as a ridge of 1/passes allows.
    """
    mean, noise = moment.sum(axis=0), way.found.deviation
    covariance = positive_part(moment - np.outer(mean, mean))

    def learned(bases: Basis) -> np.ndarray:
        """Return the curve by each of some bases, (…, K, width)."""
        directions = bases.directions / np.sqrt(bases.variances + way.ridge)[..., None, :]
        turned = directions.swapaxes(-1, -2)
        curvature = turned @ covariance @ directions + np.eye(directions.shape[-1]) / passes
        values = directions @ np.linalg.solve(curvature, turned @ covariance @ curves.T)
        return np.asarray((values - (mean @ values)[..., None, :]).swapaxes(-1, -2))

    noisy = moment + _deviations(block.width, noise)
    noisy /= np.maximum(noisy.sum(axis=(1, 2), keepdims=True), 0.5)
    usual = learned(bases_of_number(moment, noise, is_number=way.is_number))
    moved = learned(bases_of_number(noisy, noise, is_number=way.is_number)) - usual
    if (other := other_basis(moment, noise, is_number=way.is_number)) is None:
        return _largest(moved)
    directions = other.directions / np.sqrt(other.variances + way.ridge)
    of_steps = unit * (directions - other.mean @ directions).T
    return np.vstack([_largest(moved), _largest(learned(other)[None] - usual), of_steps])


def _largest(moved: np.ndarray) -> np.ndarray:
    """Return FACTOR times the longest row of each matrix (…, K, width)."""
    longest = np.linalg.norm(moved, axis=-1).argmax(axis=-1)[..., None, None]
    return np.asarray(FACTOR * np.take_along_axis(moved, longest, axis=-2)[..., 0, :])


def _deviations(width: int, deviation: float) -> np.ndarray:
    """Return a moment's noise of one deviation in each number: √2 less in two that stand off the diagonal."""
    found = np.zeros((2 * width - 1, width, width))
    places, pairs = np.arange(width), np.arange(width - 1)
    found[places, places, places] = deviation
    found[width + pairs, pairs, pairs + 1] = found[width + pairs, pairs + 1, pairs] = deviation / math.sqrt(2)
    return found
