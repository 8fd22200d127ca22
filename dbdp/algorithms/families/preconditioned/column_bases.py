"""Coordinates of an additive model from noisy histograms of its columns: uncorrelated within each, smooth ones first.

Post-processing of one release (privacy.md §24.2). Under the shares of its cells a column's block b has the mean m and
the covariance V. Its coordinates are (b - m)ᵀU, U with UᵀVU = diag(λ), and λ is the prior variance of each. With a
ridge κ a coordinate counts as v = λ/(λ + κ), its variance in the descent. Shapes: a block is (n, width), U (width, a).
"""

import math
from dataclasses import dataclass

import numpy as np

from dbdp.algorithms.families.preconditioned.preconditioning import ABOVE, Preconditioner
from dbdp.learning.rows.column_blocks import CATEGORY, INDICATOR, ColumnBlock, RowBlocks

LEAST_RIDGE, MOST_RIDGE = 0.01, 50.0
SMOOTHEST = 0.25  # prior variance of the smoothest coordinate of a curve
POINTS = 4  # of each cell of a curve, among which its rows are spread
_LEAST_VARIANCE = 1e-5  # of a direction of a category's block
_FLAT = 1e-6  # of the smoothest direction of a curve: a rougher one is left out
_BETWEEN = 0.002  # of the rows between the bounds of a number: with less it is no curve
_HALVINGS = 50


@dataclass(frozen=True)
class Basis:
    """The coordinates of a column."""

    mean: np.ndarray  # m, (width,)
    variances: np.ndarray  # λ, (a,)
    directions: np.ndarray  # U, (width, a)


def basis_of(block: ColumnBlock, shares: np.ndarray, *, is_number: bool) -> Basis:
    """Return the coordinates of a column, whose cells have these shares of the rows."""
    points, weights = _points(block, shares)
    mean = weights @ points
    covariance = (points * weights[:, None]).T @ points - np.outer(mean, mean)
    if block.kind in (CATEGORY, INDICATOR):
        values, vectors = np.linalg.eigh(covariance)
        square = (block.size - block.least) ** 2
        kept = values > _LEAST_VARIANCE * square
        scaled = values[kept] / square
        return Basis(mean, scaled, vectors[:, kept] * np.sqrt(scaled / values[kept]))
    if shares[1:-1].sum() < _BETWEEN:
        return _straight(mean, covariance)
    return _smooth(mean, covariance, power=2 if is_number else 1)


def _straight(mean: np.ndarray, covariance: np.ndarray) -> Basis:
    """Return the one direction of a number that is at its bounds, as an indicator has it."""
    line = np.linspace(0.0, 1.0, len(mean))
    return Basis(mean, np.array([line @ covariance @ line]), line[:, None])


def _points(block: ColumnBlock, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of values that stand for the cells (p, width), and their shares of the rows (p,)."""
    if block.kind == CATEGORY:
        return np.eye(block.width) * block.size, shares
    if block.kind == INDICATOR:
        return np.array([[block.least], [block.size]]), shares
    places = (np.arange(POINTS * block.cells) + 0.5) / (2 * POINTS)
    hats = np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(block.width)))
    return hats, np.repeat(shares / POINTS, POINTS)


def _smooth(mean: np.ndarray, covariance: np.ndarray, power: int) -> Basis:
    """Return the directions of a curve by their variance against their roughness, Σ of squared steps between knots."""
    steps = np.diff(np.eye(len(mean)), axis=0)
    plane = np.linalg.svd(np.ones((1, len(mean))))[2][1:].T  # the curves whose values at the knots add up to 0
    root = np.linalg.cholesky(plane.T @ steps.T @ steps @ plane)
    inner = np.linalg.solve(root, np.linalg.solve(root, plane.T @ covariance @ plane).T)
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    kept = values > _FLAT * values[-1]
    variances = SMOOTHEST * (values[kept] / values[-1]) ** power
    directions = plane @ np.linalg.solve(root.T, vectors[:, kept])
    return Basis(mean, variances, directions * np.sqrt(variances / values[kept]))


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
    rows_of: RowBlocks, shares: list[np.ndarray], dimension: float, start: float, *, is_number: bool
) -> Preconditioner:
    """Return the map to the coordinates of all columns, from the shares of their cells.

    `dimension` is the most Σ v, and `start` the constant's coefficient at which the descent begins. The matrix has a
    row for each coordinate and zeros below, so that it is square; divided by its norm it makes packed rows of them.
    """
    bases = [basis_of(block, each, is_number=is_number) for block, each in zip(rows_of.blocks, shares, strict=False)]
    ridge = ridge_for(np.concatenate([basis.variances for basis in bases]), dimension)
    widths = [block.width for block in rows_of.blocks]
    matrix = np.zeros((sum(widths) + 1, sum(widths) + 1))
    matrix[0, -1], row, column, effective = 1.0, 1, 0, 1.0
    for basis, width in zip(bases, widths, strict=True):
        directions = basis.directions / np.sqrt(basis.variances + ridge)  # of variance λ/(λ + κ)
        end = row + directions.shape[1]
        matrix[row:end, column : column + width] = directions.T
        matrix[row:end, -1] = -directions.T @ basis.mean
        row, column, effective = end, column + width, effective + np.sum(basis.variances / (basis.variances + ridge))
    norm = float(np.linalg.norm(matrix, 2)) * ABOVE
    scale = norm * rows_of.radius
    first = np.zeros(len(matrix))
    first[0] = start * scale
    return Preconditioner(matrix / norm, scale, effective, 1 / rows_of.radius, first)
