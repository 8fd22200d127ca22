"""Where the labels of a regression are within their bounds: one small histogram of a part that earlier counts show.

privacy.md §24.6. Labels are packed, in [-1, 1]. Counts are whole numbers, so that no margin for rounding is needed.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbdp.algorithms.noisy_sums import gaussian_sum
from dbdp.algorithms.plan import Facts
from dbdp.algorithms.rows import Rows
from dbdp.algorithms.stages.column_moments import on_simplex
from dbdp.learning.counts import tallies
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.privacy.mechanisms import ROOM, Gaussian

CELLS = 64
MOST, WIDER = 0.8, 1.3  # of the rows; times the narrowest interval that has as many: about where all labels are
DOUBT = 1.5  # standard deviations of noise, by which counts may be too high
DOUBT_OF_BOUNDS = 2.0  # … in the first count: labels are far from a wrong part of the bounds


@dataclass(frozen=True)
class LabelWindow:
    """About where most labels are, from what was released."""

    mean: float
    width: float  # of the narrowest interval with most of them, at most 1: half of the bounds

    @property
    def part(self) -> tuple[float, float]:
        """The middle of the part of the bounds that has nearly all labels, and half of its length, at most 1."""
        half = 2 * self.width
        return (self.mean, half) if half < 1 else (0.0, 1.0)


WHOLE = LabelWindow(0.0, 1.0)


@dataclass(frozen=True)
class WindowRelease:
    """The release, from public facts only; `multiplier` is σ for a sensitivity of 1."""

    rows: int
    dimension: int
    multiplier: float

    @property
    def sensitivity(self) -> float:
        """√2: how far one replaced record moves the histogram.

        Proof (privacy.md §24.6). Given what was released before, the cells are fixed. A record is in one cell at most,
        by a function of itself. Replacing it takes 1 from one cell and adds 1 to another. ∎ Attained by labels at both
        ends of the cells.
        """
        return math.sqrt(2) * ROOM

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of each cell."""
        return gaussian_sum(self.sensitivity, CELLS, multiplier=self.multiplier)

    def released(self, rows: Rows, low: float, high: float) -> LabelWindow:
        """Return where the labels are within [low, high]: one pass over the packed rows."""
        return window_of(self._noisy(rows, low, high), self.noise.noise_scale, self.rows, low, high)

    def found(self, rows: Rows) -> LabelWindow:
        """Return where the labels are within their bounds, by two releases: one of all the bounds, and `released`."""
        noisy = self._noisy(rows, -1.0, 1.0)
        total = max(noisy.sum(), self.noise.noise_scale * math.sqrt(CELLS))
        return self.released(rows, *coarse_window(noisy / total, self.noise.noise_scale / total))

    def _noisy(self, rows: Rows, low: float, high: float) -> np.ndarray:
        tally = tallies.NumberCells(low, high, CELLS)
        described = tallies.described(tally, outputs=1, dimension=self.dimension)
        return self.noise.release(rows.tally(np.zeros(self.dimension), described).astype(float))


def where_labels_are(
    rows: Rows, facts: Facts, multiplier: float, share: float, rows_of: RowBlocks | None
) -> LabelWindow:
    """Return where the labels are, by two counts with that share of μ² = `multiplier`⁻² together."""
    inputs = rows_of.places if rows_of else facts.dimension
    return WindowRelease(facts.rows, inputs, multiplier * math.sqrt(2 / share) * ROOM).found(rows)


def coarse_window(shares: np.ndarray, deviation: float) -> tuple[float, float]:
    """Return the ends of the cells of [-1, 1] that clearly have most rows, and of one more on each side.

    The noisy shares of the cells have that deviation. If no interval is clear, it is all of [-1, 1].
    """
    count, found = len(shares), _narrowest(shares, DOUBT_OF_BOUNDS * deviation, 1.0)
    first, last = found or (0, count)
    return max(2 * (first - 1) / count - 1, -1.0), min(2 * (last + 1) / count - 1, 1.0)


def window_of(noisy: np.ndarray, deviation: float, rows: int, low: float, high: float) -> LabelWindow:
    """Return the narrowest interval of equal cells of [low, high] that clearly has most rows, and the mean about it.

    `noisy` counts have noise of that deviation, and are of `rows` rows at most.
    """
    count, cell = len(noisy), (high - low) / len(noisy)
    total = max(min(noisy.sum() + DOUBT_OF_BOUNDS * math.sqrt(count) * deviation, rows), 1.0)
    found = _narrowest(noisy, DOUBT * deviation, total)
    first, last = found or (0, count)
    start, end = max(first - (last - first) // 2, 0), min(last + (last - first) // 2, count)
    middles = low + cell * (np.arange(start, end) + 0.5)
    width = min(WIDER * (last - first) * cell, 1.0)
    return LabelWindow(float(on_simplex(noisy[start:end] / total) @ middles), width)


def _narrowest(noisy: np.ndarray, doubt: float, total: float) -> tuple[int, int] | None:
    """Return the narrowest interval of cells that clearly has most of `total`, from a cell to before one; or None.

    Clearly: by as much as `doubt` times the root of its number of cells.
    """
    sums, ends = np.append(0.0, np.cumsum(noisy)), np.arange(len(noisy) + 1)
    between, lengths = sums - sums[:, None], ends - ends[:, None]
    clear = between - np.sqrt(np.maximum(lengths, 0)) * doubt >= MOST * total
    if not (clear & (lengths > 0)).any():
        return None
    length = lengths[clear & (lengths > 0)].min()
    first = int(np.where(lengths == length, between, -math.inf).max(axis=1).argmax())
    return first, first + int(length)
