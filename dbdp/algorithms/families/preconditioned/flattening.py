"""Coordinates in which columns that say the same are no longer a steep direction, from one more noisy second moment.

privacy.md §24.4. Columns that go together make a few directions of the coordinates of `column_bases` vary much more
than was thought, and the descent takes long there, or diverges. Shapes: matrices (a, a), a the number of coordinates.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dbdp.algorithms.families.preconditioned.preconditioning import ABOVE, Coordinates, Preconditioner, matrix_of
from dbdp.algorithms.noisy_sums import gaussian_sum
from dbdp.algorithms.rows import Rows
from dbdp.learning.counts import tallies
from dbdp.learning.counts.cut_moments import STEPS, CutMoment
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.privacy.mechanisms import ROOM, Gaussian

LONGEST = 1.3  # times √d_eff: longer rows are cut


@dataclass(frozen=True)
class CutMomentRelease:
    """The release of the second moment of rows z of length 1 at most, from what is public; `multiplier` is σ/Δ."""

    rows: int
    coordinates: int  # a
    length: float  # of a row in the coordinates, above which it is cut
    multiplier: float
    blocks: RowBlocks

    @property
    def sensitivity(self) -> float:
        """√2: how far one replaced record moves the sum of zzᵀ.

        Proof (privacy.md §24.4, §16.1). ‖zzᵀ - yyᵀ‖_F² ≤ ‖z‖⁴ + ‖y‖⁴ ≤ 2; a record and none differ by 1. A row's z is
        computed from that row only, is cut so that it has ‖z‖ ≤ 1 when it is in whole numbers of 1/STEP, and the sums
        of these are exact. ∎ Attained by orthogonal rows.
        """
        return math.sqrt(2) * ROOM

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of each of the a(a + 1)/2 orthonormal coordinates of the sum."""
        count = self.coordinates * (self.coordinates + 1) // 2
        return gaussian_sum(self.sensitivity, count, multiplier=self.multiplier)

    def released(self, rows: Rows, matrix: np.ndarray) -> np.ndarray:
        """Return the noisy mean of zzᵀ: one pass over the packed rows."""
        tally = CutMoment(self.length, self.coordinates, **self.blocks.as_data())
        described = tallies.described(tally, outputs=len(matrix), dimension=self.blocks.places)
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


def cut_moment_of(
    way: Preconditioner, coordinates: int, blocks: RowBlocks, rows: int, multiplier: float
) -> CutMomentRelease:
    """Return the release of the second moment of rows of these coordinates, most of which are not cut."""
    length = LONGEST * math.sqrt(way.effective_dimension) / way.scale
    return CutMomentRelease(rows, coordinates, length, multiplier, blocks)


def flattened(rows: Rows, way: Coordinates, variances: np.ndarray, release: CutMomentRelease) -> Coordinates:
    """Return coordinates in which no direction varies more than 1, as far as a released moment shows it.

    `variances` (a,) are those of the coordinates of `way`, as they were thought of. Only what is clear of noise
    counts: the difference from them is shortened by the noise's largest eigenvalue.
    """
    unit = (release.length * way.scale) ** 2
    found = release.released(rows, way.matrix) * unit - np.diag(variances)
    spread, turned = spread_of(found, variances, release.spectral_edge * unit)
    steep = spread > 1.0
    return _shortened(way, turned[:, steep], spread[steep] ** -0.5, float(np.sum(np.minimum(spread, 1.0))))


def spread_of(found: np.ndarray, variances: np.ndarray, edge: float) -> tuple[np.ndarray, np.ndarray]:
    """Return variances (a,) and directions (a, a), one a column, from noisy differences from variances of coordinates.

    Differences (a, a) are shortened by `edge`, the largest eigenvalue of their noise.
    """
    values, vectors = np.linalg.eigh(found)
    clear = np.sign(values) * np.maximum(np.abs(values) - edge, 0.0)
    spread, turned = np.linalg.eigh(np.diag(variances) + (vectors * clear) @ vectors.T)
    return np.maximum(spread, 0.0), turned


def _shortened(way: Coordinates, directions: np.ndarray, parts: np.ndarray, effective: float) -> Coordinates:
    """Return the coordinates Az of coordinates z, A = I - D(1 - parts)Dᵀ of orthonormal directions D (a, r).

    The descent begins at the same model.
    """
    count = len(directions)
    left, right = np.zeros((len(parts), len(way.matrix))), directions.T @ way.matrix[:count]
    left[:, :count] = ((1.0 - parts) * directions).T
    moved = way.matrix - left.T @ right
    norm = float(np.linalg.norm(moved, 2)) * ABOVE
    start = way.start
    if start is not None:
        models = start.reshape(-1, len(moved)).copy()
        models[:, :count] += (models[:, :count] @ directions * (1.0 / parts - 1.0)) @ directions.T
        start = models.ravel() * norm
    factors = np.vstack([way.matrix / norm, left, right / norm])
    changed = {"matrix": moved / norm, "scale": way.scale * norm, "factors": factors, "start": start}
    return replace(way, effective_dimension=effective, **changed)
