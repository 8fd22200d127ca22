"""A release of the second moments of all columns and of the histogram of the label, as one noisy vector.

privacy.md §24.1. Shapes: a tally is a vector (m,), of the numbers of each block in their order, then of the label.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbdp.algorithms.noisy_sums import gaussian_sum
from dbdp.algorithms.rows import Rows
from dbdp.learning.counts import tallies
from dbdp.learning.counts.block_moments import PARTS, BlockMoments, label_cells
from dbdp.learning.rows.column_blocks import CURVE, RowBlocks
from dbdp.privacy.mechanisms import ROOM, Gaussian

LEAST_SHARE = 1e-3  # of a column's rows, divided among its cells: no cell is empty
_LEAST_TOTAL = 0.5  # of the rows that a curve's moment stands for


@dataclass(frozen=True)
class NoisyColumns:
    """What was released, divided by the number of rows."""

    columns: list[np.ndarray]  # of a curve its second moment (width, width), which adds up to 1; of others the shares
    labels: np.ndarray  # share of each label
    deviation: float  # of the noise in each number


@dataclass(frozen=True)
class ColumnRelease:
    """The release, from public facts only; `multiplier` is σ in units of the sensitivity."""

    rows_of: RowBlocks
    is_number: bool  # whether the label is a number
    multiplier: float
    outputs: int = 1  # K, of several classes

    @property
    def sensitivity(self) -> float:
        """√(2(F + 1)): how far one replaced record moves the moments of F columns and pairs, and the labels.

        Proof (privacy.md §24.1). By a function of itself a record adds v ≥ 0 to each of the F + 1 parts, with ‖v‖ ≤ 1:
        a 1 in one cell, or, of a curve, a², b² and √2ab of two neighbouring coordinates a, b ≥ 0 with a + b ≤ 1, and
        then ‖v‖ = a² + b². Two such vectors have ⟨v, w⟩ ≥ 0, so that ‖v - w‖² ≤ 2; a record and none differ by 1.
        The tally is exact, and the factor √2 errs by 2⁻⁵² of a sum, which ROOM covers. ∎ Attained by two records that
        share no cell, at knots.
        """
        return math.sqrt(2 * (len(self.rows_of.blocks) + 1)) * ROOM

    @property
    def sizes(self) -> list[int]:
        """How many numbers each part has, the label's last."""
        labels = label_cells(self.outputs, is_number=self.is_number)
        return [*(block.moments for block in self.rows_of.blocks), labels]

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of each number."""
        return gaussian_sum(self.sensitivity, sum(self.sizes), multiplier=self.multiplier)

    @cached_property
    def _weights(self) -> np.ndarray:
        """√2 for a number off the diagonal, which stands twice in the matrix, else 1."""
        weights = [np.ones(size) for size in self.sizes]
        for block, each in zip(self.rows_of.blocks, weights, strict=False):
            if block.kind == CURVE:
                each[block.width :] = math.sqrt(2)
        return np.concatenate(weights)

    def released(self, rows: Rows) -> NoisyColumns:
        """Return the noisy moments and shares: one pass over the packed rows."""
        tally = BlockMoments(**self.rows_of.as_data(), is_number=self.is_number, outputs=self.outputs)
        described, no_model = tallies.described(tally, outputs=1, dimension=self.rows_of.places), np.zeros(1)
        noisy = self.noise.release(rows.tally(no_model, described) / PARTS * self._weights) / self._weights
        *parts, labels = np.split(noisy, np.cumsum(self.sizes)[:-1])
        found = max(labels.sum(), self.noise.noise_scale * math.sqrt(len(labels)))  # rows, above the noise of a sum
        columns = [
            _curve_moment(part / found, block.width) if block.kind == CURVE else nearest_shares(part / found)
            for block, part in zip(self.rows_of.blocks, parts, strict=True)
        ]
        return NoisyColumns(columns, nearest_shares(labels / found), self.noise.noise_scale / found)


def _curve_moment(numbers: np.ndarray, width: int) -> np.ndarray:
    """Return the matrix of a diagonal and the numbers off it, divided by its sum: that of E bbᵀ is 1."""
    diagonal, off = numbers[:width], numbers[width:]
    moment = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
    return np.asarray(moment / max(moment.sum(), _LEAST_TOTAL))


def nearest_shares(noisy: np.ndarray) -> np.ndarray:
    """Return about the shares that are nearest to noisy ones (m,), but all above 0: post-processing."""
    shares = np.maximum(on_simplex(noisy), LEAST_SHARE / len(noisy))
    return np.asarray(shares / shares.sum())


def on_simplex(noisy: np.ndarray) -> np.ndarray:
    """Return the nearest numbers (…, m) of at least 0 that add up to 1: one is taken from all that stay above it."""
    ordered = np.sort(noisy, axis=-1)[..., ::-1]
    excess = (np.cumsum(ordered, axis=-1) - 1.0) / np.arange(1, noisy.shape[-1] + 1)
    last = noisy.shape[-1] - 1 - np.argmax((ordered > excess)[..., ::-1], axis=-1, keepdims=True)
    return np.asarray(np.maximum(noisy - np.take_along_axis(excess, last, axis=-1), 0.0))
