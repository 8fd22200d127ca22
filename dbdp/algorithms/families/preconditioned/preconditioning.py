"""A noisy second moment of the rows, and the coordinates in which it is about the identity (privacy.md §16).

A symmetric matrix of dimension d is a vector of d(d+1)/2 orthonormal coordinates: its diagonal, and √2 times what is
above it, so that its Frobenius norm is the vector's length. Shapes: matrices (d, d), coordinates (d(d+1)/2,).
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypeVar

import numpy as np

from dbdp.algorithms.noisy_sums import Summed, gaussian_sum
from dbdp.algorithms.rows import Rows
from dbdp.algorithms.stages.label_window import WHOLE, LabelWindow
from dbdp.learning.counts import tallies
from dbdp.learning.counts.entry_moments import EntryMoment, grid_of
from dbdp.learning.rows.column_blocks import Placed, RowBlocks
from dbdp.privacy.mechanisms import ROOM, Gaussian

ABOVE = 1 + 2.0**-20  # rows that W makes shorter by this stay packed rows when they are rounded to 24 bits


@dataclass(frozen=True)
class Preconditioner:
    """The map of rows x to x̃ = Wx, in which their second moment is about the identity."""

    matrix: np.ndarray  # W/s, shape (d, d), of norm just below 1: it makes packed rows of packed rows
    scale: float  # s
    effective_dimension: float  # Σλ₊/(λ₊ + κ), about E‖x̃‖², at least 1
    constant: float  # about the root mean square of the last coordinate of x, which the moment shows, from 1/√d to 1
    start: np.ndarray | None = None  # the model at which the descent begins, over x̃/s, shape (P,); None is 0
    window: LabelWindow = WHOLE  # where labels that are numbers lie: clips are in units of its width
    factors: np.ndarray | None = None  # of `matrix`, see `placed.lengths`; None if most of it differs from 0

    def placed(self, rows_of: RowBlocks | None) -> Placed | None:
        """Return what the lengths of rows in places follow from; None for other rows."""
        if rows_of is None:
            return None
        if self.factors is None:
            return Placed(rows_of, self.matrix.T @ self.matrix, squared=True)
        return Placed(rows_of, self.factors)

    def begun(self, constant: float, window: LabelWindow) -> Self:
        """Return it with a descent that begins at the mean of a window, by rows that end in that constant."""
        model = np.zeros(len(self.matrix))
        model[-1] = window.mean / constant
        return replace(self, start=np.linalg.solve(self.matrix.T, model), window=window)


Coordinates = TypeVar("Coordinates", bound=Preconditioner)


def moment_sensitivity(summed: Summed, *, square: float = 1.0, moved: int = 1) -> float:
    """Return √2·r·R² with its margin: how far r = `moved` replaced records move the computed second moment.

    Proof (privacy.md §16.1, §14.2). ‖xxᵀ - zzᵀ‖_F² = ‖x‖⁴ + ‖z‖⁴ - 2⟨x, z⟩² ≤ 2R⁴ for rows of ‖x‖² ≤ R² = `square`,
    and r such differences add up to r times that at most. A sum of n products of two numbers of 24 bits, each exact,
    errs by γ_D·Σ|x_i x_j|, D its depth; over all i, j that is a vector of length ≤ γ_D·Σ‖x‖² ≤ γ_D·nR². Its coordinates
    err by 2u of themselves, 2u·nR² in all, and there are two sums: `Summed.error`. ∎ Attained by orthogonal rows of
    length R, r times each.
    """
    return (math.sqrt(2) * moved + summed.error(1.0)) * square * ROOM


def moment_noise(summed: Summed, dimension: int, multiplier: float, *, square: float = 1.0, moved: int = 1) -> Gaussian:
    """Return noise of standard deviation `multiplier` × `moment_sensitivity` for each coordinate of a second moment."""
    sensitivity = moment_sensitivity(summed, square=square, moved=moved)
    return gaussian_sum(sensitivity, dimension * (dimension + 1) // 2, multiplier=multiplier)


def usual_ridge(scale: float, dimension: int) -> float:
    """Return κ = ¼√(2d)σ: an eighth of how far noise of standard deviation σ moves the eigenvalues (§16.2)."""
    return math.sqrt(2 * dimension) * scale / 4


def ridge_of(noise: Gaussian, rows: int, dimension: int) -> float:
    """Return κ for the mean of n noisy products, public."""
    return usual_ridge(noise.noise_scale / rows, dimension)


@dataclass(frozen=True)
class MomentRelease:
    """The release of the second moment of all rows, from public facts only; `multiplier` is σ/Δ."""

    rows: int  # n
    dimension: int
    multiplier: float
    blocks: RowBlocks | None = None  # of rows in places

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of each of the orthonormal coordinates; the sum of rows in places is exact."""
        exact = self.blocks is not None
        summed = Summed.of_whole_numbers(self.rows) if exact else Summed.of_moment(self.rows, self.dimension)
        return moment_noise(summed, self.dimension, self.multiplier)

    @property
    def ridge(self) -> float:
        """κ for the mean, public."""
        return ridge_of(self.noise, self.rows, self.dimension)

    def released(self, rows: Rows) -> np.ndarray:
        """Return the noisy mean of xxᵀ over the rows, shape (d, d): one pass over them."""
        if self.blocks is None:
            noisy = self.noise.release(coordinates_of(rows.second_moment()))
        else:
            tally = EntryMoment(grid_of(self.rows), **self.blocks.as_data())
            described = tallies.described(tally, outputs=1, dimension=self.blocks.places)
            units = np.full(self.dimension * (self.dimension + 1) // 2, math.sqrt(2) / tally.grid**2)
            units[: self.dimension] = 1 / tally.grid**2
            noisy = self.noise.release(rows.tally(np.zeros(self.dimension), described) * units)
        return matrix_of(noisy, self.dimension) / self.rows


def coordinates_of(matrix: np.ndarray) -> np.ndarray:
    """Return the orthonormal coordinates of a symmetric matrix."""
    above = matrix[np.triu_indices(len(matrix), 1)]
    return np.concatenate([np.diagonal(matrix), math.sqrt(2) * above])


def matrix_of(coordinates: np.ndarray, dimension: int) -> np.ndarray:
    """Return the symmetric matrix that has these coordinates."""
    matrix = np.zeros((dimension, dimension))
    matrix[np.triu_indices(dimension, 1)] = coordinates[dimension:] / math.sqrt(2)
    return matrix + matrix.T + np.diag(coordinates[:dimension])


def preconditioner_of(mean: np.ndarray, ridge: float) -> Preconditioner:
    """Return W = U(Λ₊ + κ)^(-1/2)Uᵀ of a noisy mean UΛUᵀ of xxᵀ, κ = `ridge` > 0: it reads nothing else (§16.2)."""
    values, vectors = np.linalg.eigh(mean)
    positive = np.maximum(values, 0.0)
    roots = (positive + ridge) ** -0.5
    scale = float(roots.max()) * ABOVE
    effective = float(np.sum(positive / (positive + ridge)))
    constant = math.sqrt(min(max(mean[-1, -1], 1 / len(mean)), 1.0))
    return Preconditioner((vectors * (roots / scale)) @ vectors.T, scale, max(1.0, effective), constant)
