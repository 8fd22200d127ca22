"""Coordinates in which columns that say the same are no longer a steep direction, from one more noisy second moment.

privacy.md §24.4. Columns that go together make a few directions of the coordinates of `column_bases` vary much more
than was thought, and the descent takes long there, or diverges. Shapes: matrices (a, a), a the number of coordinates.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dbdp.algorithms.families.preconditioned.preconditioning import ABOVE, Coordinates, matrix_of
from dbdp.algorithms.noisy_sums import UNIT, gaussian_sum
from dbdp.algorithms.rows import Rows
from dbdp.learning.counts import tallies
from dbdp.learning.counts.cut_moments import STEPS, CutMoment
from dbdp.privacy.mechanisms import ROOM, Gaussian

LONGEST = 1.3  # times √d_eff: longer rows are cut


@dataclass(frozen=True)
class CutMomentRelease:
    """The release of the second moment of rows z of length 1 at most, from what is public; `multiplier` is σ/Δ."""

    rows: int
    dimension: int  # d, of a packed row
    coordinates: int  # a
    length: float  # of a row in the coordinates, to which it is cut
    multiplier: float

    @property
    def sensitivity(self) -> float:
        """√2 with its margins: how far one replaced record moves the computed sum of zzᵀ.

        Proof (privacy.md §24.4, §16.1). ‖zzᵀ - yyᵀ‖_F² ≤ ‖z‖⁴ + ‖y‖⁴ ≤ 2; a record and none differ by 1. In any order
        a sum over n rows errs by γ_n·n in each of the two sums, 2.02(n + 5)u·n. The other rows' z = Mx/length may
        differ in their last bits, by 2.02d√d·u/length each, and zzᵀ by twice that: 4.04n·d√d·u/length. A block's
        numbers are rounded to 1/STEPS: at most n blocks, of a² numbers, err by a/STEPS each in both sums. ∎ Attained
        by orthogonal rows.
        """
        summed = 2.02 * UNIT * (self.rows + 5) * self.rows
        moved = 4.04 * UNIT * self.rows * self.dimension**1.5 / self.length
        return (math.sqrt(2) + summed + moved + self.rows * self.coordinates / STEPS) * ROOM

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of each of the a(a + 1)/2 orthonormal coordinates of the sum."""
        count = self.coordinates * (self.coordinates + 1) // 2
        return gaussian_sum(self.sensitivity, count, multiplier=self.multiplier)

    def released(self, rows: Rows, matrix: np.ndarray) -> np.ndarray:
        """Return the noisy mean of zzᵀ: one pass over the packed rows."""
        tally = CutMoment(self.length, self.coordinates)
        described = tallies.described(tally, outputs=self.dimension, dimension=self.dimension)
        noisy = self.noise.release(rows.tally(matrix, described) / STEPS * self.weights)
        return matrix_of(noisy, self.coordinates) / self.rows

    @property
    def weights(self) -> np.ndarray:
        """1 for each number of the diagonal, and √2 for each above it: what makes the tally a vector of that norm."""
        above = self.coordinates * (self.coordinates - 1) // 2
        return np.concatenate([np.ones(self.coordinates), np.full(above, math.sqrt(2))])

    @property
    def spectral_edge(self) -> float:
        """About the largest eigenvalue of the noise in the mean."""
        return math.sqrt(2 * self.coordinates) * self.noise.noise_scale / self.rows


def flattened(rows: Rows, way: Coordinates, variances: np.ndarray, count: int, multiplier: float) -> Coordinates:
    """Return coordinates in which no direction varies more than 1, as far as a released moment shows it.

    `variances` (a,) are those of the coordinates of `way`, as they were thought of, `count` is n, and `multiplier`
    that of the release. Only what is clear of noise counts: the difference from them is shortened by the noise's
    largest eigenvalue.
    """
    length = LONGEST * math.sqrt(way.effective_dimension) / way.scale
    release = CutMomentRelease(count, len(way.matrix), len(variances), length, multiplier)
    unit = (length * way.scale) ** 2
    found = release.released(rows, way.matrix) * unit - np.diag(variances)
    values, vectors = np.linalg.eigh(found)
    clear = np.sign(values) * np.maximum(np.abs(values) - release.spectral_edge * unit, 0.0)
    spread, turned = np.linalg.eigh(np.diag(variances) + (vectors * clear) @ vectors.T)
    spread = np.maximum(spread, 0.0)
    shorter = (turned * np.maximum(spread, 1.0) ** -0.5) @ turned.T
    return _turned(way, shorter, float(np.sum(np.minimum(spread, 1.0))))


def _turned(way: Coordinates, matrix: np.ndarray, effective: float) -> Coordinates:
    """Return the coordinates Az of coordinates z; the descent begins at the same model."""
    count = len(matrix)
    moved = np.zeros_like(way.matrix)
    moved[:count] = matrix @ way.matrix[:count]
    norm = float(np.linalg.norm(moved, 2)) * ABOVE
    start = way.start
    if start is not None:
        models = start.reshape(-1, len(moved)).copy()
        models[:, :count] = np.linalg.solve(matrix, models[:, :count].T).T * norm
        start = models.ravel()
    return replace(way, matrix=moved / norm, scale=way.scale * norm, effective_dimension=effective, start=start)
