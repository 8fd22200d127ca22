"""Coordinates of an additive model from noisy moments of its columns: uncorrelated within each, smooth ones first.

Post-processing of one release (privacy.md §24.2). By it a column's block b has the mean m and the covariance V. Its
coordinates are (b - m)ᵀU, U with UᵀVU = diag(λ), and λ is the prior variance of each. With a ridge κ a coordinate
counts as v = λ/(λ + κ), its variance in the descent. Shapes: a block is (n, width), U (width, a). Of several moments
(…, width, width) of a number all have width - 1 coordinates; one that is left out is 0, as is its variance.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from dbdp.algorithms.families.preconditioned.preconditioning import ABOVE, Preconditioner
from dbdp.algorithms.stages.column_moments import NoisyColumns, on_simplex
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, ColumnBlock, RowBlocks

LEAST_RIDGE, MOST_RIDGE = 0.01, 50.0
SMOOTHEST = 0.25  # prior variance of the smoothest coordinate of a curve
FEW = 0.02  # of the rows: so few between the bounds of a number do not make it a curve
CLEAR = 2.0  # standard deviations of noise
OF_NOISE = 0.25  # of the noise in a direction, which counts as variance
_LEAST_VARIANCE = 1e-5  # of a direction
_FLAT = 1e-6  # of the smoothest direction of a curve: a rougher one is left out
_BETWEEN_ENTRIES = 17  # variances of noise in the sum of the means between the bounds, for 8 knots
_HALVINGS = 50


@dataclass(frozen=True, kw_only=True)
class AdditivePreconditioner(Preconditioner):
    """The map of rows to the coordinates of all columns, and what was released of each."""

    found: NoisyColumns
    ridge: float  # κ
    is_number: bool  # whether the label is a number
    shares: np.ndarray  # (d - 1,): the noisy mean of each coordinate, times the radius


@dataclass(frozen=True)
class Basis:
    """The coordinates of a column."""

    mean: np.ndarray  # m, (…, width)
    variances: np.ndarray  # λ, (…, a)
    directions: np.ndarray  # U, (…, width, a)


def basis_of(block: ColumnBlock, moment: np.ndarray, noise: float, *, is_number: bool) -> Basis:
    """Return the coordinates of a column with this second moment, or these shares; see `NoisyColumns`."""
    if block.kind == CURVE:
        return _without_zeros(bases_of_number(moment, noise, is_number=is_number))
    points = np.eye(block.width) * block.size if block.kind == CATEGORY else np.array([[block.least], [block.size]])
    mean = moment @ points
    covariance = (points * moment[:, None]).T @ points - np.outer(mean, mean)
    plane = _interactions(block, moment) if block.groups else np.eye(block.width)
    values, vectors = np.linalg.eigh(plane.T @ covariance @ plane)
    square = (block.size - block.least) ** 2
    kept = values > _LEAST_VARIANCE * square
    scaled = values[kept] / square * block.prior
    return Basis(mean, scaled, plane @ vectors[:, kept] * np.sqrt(scaled / values[kept]))


def bases_of_number(moments: np.ndarray, noise: float, *, is_number: bool) -> Basis:
    """Return the coordinates of a number with each of these second moments, those of a line where it is no curve."""
    means, is_line = on_simplex(moments.sum(axis=-2)), _short_of_a_curve(moments, noise)[..., None] > 0
    curve, line = _curve(means, moments, noise, is_number=is_number), _straight(means)
    directions = np.where(is_line[..., None], line.directions, curve.directions)
    return Basis(means, np.where(is_line, line.variances, curve.variances), directions)


def _without_zeros(basis: Basis) -> Basis:
    kept = basis.variances > 0
    return Basis(basis.mean, basis.variances[kept], basis.directions[:, kept])


def _short_of_a_curve(moments: np.ndarray, noise: float) -> np.ndarray:
    """Return by how much too few rows are between the bounds, as far as noise shows, to make a number a curve."""
    between = math.sqrt(_BETWEEN_ENTRIES) * noise
    return np.asarray(max(FEW, CLEAR * between) - moments.sum(axis=-2)[..., 1:-1].sum(axis=-1))


def other_basis(moment: np.ndarray, noise: float, *, is_number: bool) -> Basis | None:
    """Return the curve of a number that is a line, or the line of one that is a curve, if other noise might show it."""
    short = float(_short_of_a_curve(moment, noise))
    if abs(short) >= CLEAR * math.sqrt(_BETWEEN_ENTRIES) * noise:
        return None
    mean = on_simplex(moment.sum(axis=0))
    return _without_zeros(_curve(mean, moment, noise, is_number=is_number) if short > 0 else _straight(mean))


def _curve(means: np.ndarray, moments: np.ndarray, noise: float, *, is_number: bool) -> Basis:
    covariances = moments - means[..., :, None] * means[..., None, :]
    return _smooth(means, covariances, noise, power=2 if is_number else 1)


def _interactions(block: ColumnBlock, shares: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis (cells, m) of what a pair says beyond its columns, whose groups have mean 0 in it.

    So a pair and its columns are uncorrelated, and the descent does not go in one direction in several blocks.
    """
    groups = np.eye(block.groups), np.eye(block.width // block.groups)
    first, second = np.repeat(groups[0], len(groups[1]), axis=0), np.tile(groups[1], (len(groups[0]), 1))
    means = np.hstack([first, second]).T * shares
    return np.linalg.svd(means)[2][block.groups + len(groups[1]) - 1 :].T


def _straight(means: np.ndarray) -> Basis:
    """Return the one direction of a number that is at its bounds, as an indicator has it."""
    width = means.shape[-1]
    shares = np.clip(means[..., -1], _LEAST_VARIANCE, 1 - _LEAST_VARIANCE)
    variances, directions = np.zeros((*means.shape[:-1], width - 1)), np.zeros((width, width - 1))
    variances[..., 0], directions[:, 0] = shares * (1 - shares), np.linspace(0.0, 1.0, width)
    return Basis(means, variances, directions)


def _smooth(means: np.ndarray, covariances: np.ndarray, noise: float, power: int) -> Basis:
    """Return the directions of a curve by their variance against their roughness, Σ of squared steps between knots.

    A variance is overestimated by a part of its noise: a coordinate that varies more than thought makes steps too long.
    """
    smoothed = _smoothed(means.shape[-1])
    inner = smoothed.T @ covariances @ smoothed
    values, vectors = np.linalg.eigh((inner + inner.swapaxes(-1, -2)) / 2)
    directions = smoothed @ vectors
    doubt = OF_NOISE * noise * np.square(directions).sum(axis=-2)
    above, clear = np.maximum(values, 0.0) + doubt, np.maximum(values - doubt, 0.0)
    largest = above[..., -1:] + _LEAST_VARIANCE
    kept = (clear > _FLAT * largest) | (np.arange(values.shape[-1]) == values.shape[-1] - 1)
    variances = kept * SMOOTHEST * np.maximum(clear / largest, _FLAT) ** power
    scales = np.sqrt(variances / (above + _LEAST_VARIANCE))
    return Basis(means, variances, directions * scales[..., None, :])


def positive_part(matrix: np.ndarray) -> np.ndarray:
    """Return the nearest symmetric matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


@cache
def _smoothed(knots: int) -> np.ndarray:
    """Return a basis (knots, knots - 1) of the curves with values that add up to 0, orthonormal by their roughness."""
    steps = np.diff(np.eye(knots), axis=0)
    plane = np.linalg.svd(np.ones((1, knots)))[2][1:].T
    root = np.linalg.cholesky(plane.T @ steps.T @ steps @ plane)
    return np.asarray(np.linalg.solve(root, plane.T).T)


def ridge_for(variances: np.ndarray, dimension: float) -> float:
    """Return the least κ, from LEAST_RIDGE, with which Σ λ/(λ + κ) is at most a dimension."""
    low, high = LEAST_RIDGE, MOST_RIDGE
    if np.sum(variances / (variances + low)) <= dimension:
        return low
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        is_above = np.sum(variances / (variances + middle)) > dimension
        low, high = (middle, high) if is_above else (low, middle)
    return low


def additive_preconditioner(
    rows_of: RowBlocks, found: NoisyColumns, dimension: float, start: np.ndarray, *, is_number: bool
) -> tuple[AdditivePreconditioner, np.ndarray]:
    """Return the map to the coordinates of all columns, from what was released of each, and their variances (a,).

    `dimension` is the most Σ v, and `start` (K,) are the constant's coefficients at which the descent begins, one for
    each model. The matrix has a row for each coordinate and zeros below, so that it is square; divided by its norm it
    makes packed rows of them.
    """
    pairs = zip(rows_of.blocks, found.columns, strict=True)
    bases = [basis_of(block, each, found.deviation, is_number=is_number) for block, each in pairs]
    ridge = ridge_for(np.concatenate([basis.variances for basis in bases]), dimension)
    widths = [block.width for block in rows_of.blocks]
    matrix = np.zeros((sum(widths) + 1, sum(widths) + 1))
    matrix[0, -1], row, column = 1.0, 1, 0
    for basis, width in zip(bases, widths, strict=True):
        directions = basis.directions / np.sqrt(basis.variances + ridge)  # of variance λ/(λ + κ)
        end = row + directions.shape[1]
        matrix[row:end, column : column + width] = directions.T
        matrix[row:end, -1] = -directions.T @ basis.mean
        row, column = end, column + width
    norm = float(np.linalg.norm(matrix, 2)) * ABOVE
    scale = norm * rows_of.radius
    first = np.zeros((len(start), len(matrix)))
    first[:, 0] = start * scale
    counted = [basis.variances / (basis.variances + ridge) for basis in bases]
    variances = np.concatenate([[1.0], *counted])
    way = AdditivePreconditioner(
        matrix / norm,
        scale,
        variances.sum(),
        1 / rows_of.radius,
        first.ravel(),
        factors=matrix / norm,
        found=found,
        ridge=ridge,
        is_number=is_number,
        shares=np.concatenate([basis.mean for basis in bases]),
    )
    return way, variances
