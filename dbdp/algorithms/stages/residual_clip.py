"""Two small releases of a regression: a table of residuals, which sets the clip, and sums, which give RMSE and R².

privacy.md §16.3, §21. Labels and scores are packed, in [-1, 1]. Counts and sums are exact integers, so that no margin
for rounding is needed.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dbdp.algorithms.noisy_sums import gaussian_sum
from dbdp.algorithms.rows import Rows
from dbdp.algorithms.scores.counting import half_widths, with_errors
from dbdp.algorithms.stages.label_window import WHOLE, LabelWindow
from dbdp.learning.counts import tallies
from dbdp.learning.counts.tallies import OCTAVES, STEPS
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.privacy.mechanisms import ROOM, Gaussian

ENDS = 2.0 ** (1 - np.arange(OCTAVES))  # the upper end of each octave of residuals
CLEAR = 4.0  # a cell with fewer rows than so many σ counts as empty
CLIPS = np.geomspace(ENDS[-1] / 2, 3.0, 80)  # that are tried
_OF_BIAS, _OF_SHORTENING = 5.0, 0.5  # weights of squared bias and of squared shortening against the noise's variance
_DRAWS = 200  # of noise, for the intervals


@dataclass(frozen=True)
class ResidualRelease:
    """The releases of residuals of a linear model, from public facts only; `multiplier` is σ for a sensitivity of 1."""

    dimension: int
    multiplier: float
    rows_of: RowBlocks | None = None  # the blocks of rows in places

    @property
    def table_sensitivity(self) -> float:
        """√2: how far one replaced record moves the table.

        Proof. Given the released model, a record is in one cell at most, by a function of itself. Replacing it takes 1
        from one cell and adds 1 to another. ∎ Attained by residuals of opposite signs.
        """
        return math.sqrt(2) * ROOM

    @property
    def sums_sensitivity(self) -> float:
        """√6: how far one replaced record moves the sums.

        Proof. Given the released model, the bound and the labels' window, a record adds (e, y², y, 1) with
        0 ≤ e, y² ≤ 1 and |y| ≤ 1, a function of itself, in steps of 1/STEPS, or nothing. Two records differ by at most
        1, 1, 2 and 0: √6; a record and none by at most 1 in each: 2. ∎ √5 is attained by the labels ±1, where one
        prediction is right and the other is not.
        """
        return math.sqrt(6) * ROOM

    @cached_property
    def table_noise(self) -> Gaussian:
        """The noise of each cell of the table."""
        return gaussian_sum(self.table_sensitivity, 2 * OCTAVES, multiplier=self.multiplier)

    @cached_property
    def sums_noise(self) -> Gaussian:
        """The noise of each of the sums."""
        return gaussian_sum(self.sums_sensitivity, 4, multiplier=self.multiplier)

    def table(self, rows: Rows, model: np.ndarray) -> "ResidualTable":
        """Return the noisy table of the residuals of a released model (1, d): one pass over the packed rows."""
        noisy = self.table_noise.release(rows.tally(model, self._described(tallies.Residuals())).astype(float))
        return ResidualTable(noisy.reshape(2, -1), self.table_noise.noise_scale)

    def evaluation(self, rows: Rows, model: np.ndarray, bound: float, window: LabelWindow = WHOLE) -> dict[str, Any]:
        """Return RMSE, in packed labels, and R² of a released model, each with its ± (95 %, of the noise): one pass."""
        centre, half = window.part
        tally = self._described(tallies.Squares(bound, centre, half))
        noisy = self.sums_noise.release(rows.tally(model, tally) / STEPS)
        draws = np.random.default_rng().normal(0.0, self.sums_noise.noise_scale, (_DRAWS, 4))
        figures = _figures(bound, half)
        values, widths = figures(noisy), half_widths(figures, noisy, draws)
        return with_errors(("rmse", "r2"), values + 0 * widths, widths)  # a figure without a known error is not shown

    def _described(self, tally: tallies.Tally) -> dict[str, Any]:
        return tallies.described(tally, outputs=1, dimension=self.dimension, rows_of=self.rows_of)


def _figures(bound: float, half: float) -> Any:
    """Return the function from sums to RMSE and R², NaN where noise leaves no rows or no variance."""

    def figures(sums: np.ndarray) -> np.ndarray:
        errors, squares, labels, rows = sums
        if rows <= 0:
            return np.full(2, math.nan)
        mean, variance = max(errors, 0.0) / rows * bound**2, (squares / rows - (labels / rows) ** 2) * half**2
        return np.array([math.sqrt(mean), 1 - mean / variance if variance > 0 else math.nan])

    return figures


@dataclass(frozen=True)
class ResidualTable:
    """A noisy table of residuals, which is public: rows by sign and octave, (2, OCTAVES), with noise of `scale`."""

    counts: np.ndarray
    scale: float

    @property
    def _clear(self) -> np.ndarray:
        return np.where(self.counts > CLEAR * self.scale, self.counts, 0.0)

    @property
    def bound(self) -> float:
        """The end of the longest octave that clearly has rows; 2 if none has."""
        occupied = np.flatnonzero(self._clear.sum(axis=0))
        return float(ENDS[occupied[0]]) if len(occupied) else 2.0

    def clip(self, noise: float, usual: float) -> float:
        """Return the c that balances what clipped residuals lose with noise; `usual` if no cell is clear of noise.

        A descent with the clip c has noise of about c·`noise` in a prediction. Residuals beyond c pull with c instead
        of their length: what is missing on one side is a bias, over the share that still pulls in full, and what is
        missing on both sides shortens the coefficients. The square of each counts, with weights from experiments.
        """
        rows = self._clear
        total = rows.sum()
        if not total:
            return usual
        beyond = np.maximum(ENDS - CLIPS[:, None], 0.0)  # (clips, OCTAVES)
        missing = beyond @ rows.T / total
        whole = np.maximum(1 - (CLIPS[:, None] < ENDS) @ rows.sum(axis=0) / total, 0.1)
        bias, shortened = (missing[:, 1] - missing[:, 0]) / whole, missing.sum(axis=1)
        lost = np.square(noise * CLIPS) + _OF_BIAS * np.square(bias) + _OF_SHORTENING * np.square(shortened)
        return float(CLIPS[lost.argmin()])
