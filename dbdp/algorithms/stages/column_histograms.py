"""A release of the histograms of all columns and of the label, as one vector of noisy counts.

privacy.md §24.1. Shapes: a tally is a vector (m,), of the cells of each block in their order, then of the label.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbdp.algorithms.noisy_sums import gaussian_sum
from dbdp.algorithms.rows import Rows
from dbdp.learning.counts import tallies
from dbdp.learning.counts.histograms import LABEL_CELLS, Histograms
from dbdp.learning.rows.column_blocks import CURVE, RowBlocks
from dbdp.privacy.mechanisms import ROOM, Gaussian

FEW = 0.02  # of the rows: so few between the bounds of a number do not make it a curve
CLEAR = 2.0  # standard deviations of noise
LEAST_SHARE = 1e-3  # of a column's rows, divided among its cells: no cell is empty


@dataclass(frozen=True)
class HistogramRelease:
    """The release, from public facts only; `multiplier` is σ in units of the sensitivity."""

    rows_of: RowBlocks
    is_number: bool  # whether the label is a number
    dimension: int  # coordinates of a packed row
    multiplier: float

    @property
    def sensitivity(self) -> float:
        """√(2(F + 1)): how far one replaced record moves the counts of F columns and the label.

        Proof (privacy.md §24.1). A record is in at most one cell of each of the F + 1 histograms, by a function of
        itself: it adds a vector of zeros and ones with at most F + 1 ones. Two such vectors differ in at most
        2(F + 1) numbers, by 1 each; a record and none in F + 1. Counts are whole numbers: there is no rounding. ∎
        Attained by two records that share no cell.
        """
        return math.sqrt(2 * (len(self.rows_of.blocks) + 1)) * ROOM

    @property
    def cells(self) -> list[int]:
        """Number of cells of each histogram, the label's last."""
        return [block.cells for block in self.rows_of.blocks] + [LABEL_CELLS if self.is_number else 2]

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of each count."""
        return gaussian_sum(self.sensitivity, sum(self.cells), multiplier=self.multiplier)

    def shares(self, rows: Rows) -> list[np.ndarray]:
        """Return the share of each cell in its column, then of each label, above 0: one pass over the packed rows."""
        blocks = [(block.kind, block.width, block.least, block.size) for block in self.rows_of.blocks]
        tally = Histograms(blocks, self.rows_of.radius, self.is_number)
        described = tallies.described(tally, outputs=1, dimension=self.dimension)
        noisy = self.noise.release(rows.tally(np.zeros((1, self.dimension)), described).astype(float))
        *parts, labels = np.split(noisy, np.cumsum(self.cells)[:-1])
        rows_found = max(labels.sum(), 1.0)
        for block, part in zip(self.rows_of.blocks, parts, strict=True):
            if block.kind == CURVE and self._has_two_values(part, rows_found):
                part[1:-1] = -rows_found  # nothing is left of these cells
        return [nearest_shares(part / rows_found) for part in (*parts, labels)]

    def _has_two_values(self, counts: np.ndarray, rows: float) -> bool:
        """Return whether the noisy counts of a number show no rows between its bounds, where they would matter."""
        return bool(counts[1:-1].sum() < max(FEW * rows, CLEAR * math.sqrt(len(counts) - 2) * self.noise.noise_scale))


def nearest_shares(noisy: np.ndarray) -> np.ndarray:
    """Return the shares, all above 0 and 1 in all, that are nearest to noisy ones (m,): post-processing.

    It is the projection onto the simplex, for which one number is taken from each, and what is below 0 is 0.
    """
    ordered = np.sort(noisy)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, len(noisy) + 1)
    taken = excess[np.flatnonzero(ordered > excess)[-1]]
    shares = np.maximum(noisy - taken, LEAST_SHARE / len(noisy))
    return np.asarray(shares / shares.sum())
