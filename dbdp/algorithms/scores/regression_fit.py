"""Private RMSE and R² of a released regression model, with noise in units of its residuals, from one release.

Prediction and label are clipped to the declared bounds, as the label is for training. privacy.md §10.7, §21.3.
Shapes: counts are the table of residuals and then the cells of the labels, in steps of 1/STEPS row. The cells of rows
without an answer are last, if there may be some.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.scores.counting import CountPlan, with_errors
from dbdp.learning.counts.residual_tables import LABEL_CELLS, LENGTHS, MOMENTS
from dbdp.learning.counts.tallies import STEPS, ResidualsAndLabels

NAMES = ("rmse", "r2", "coverage")
HIDDEN = 0.01  # largest probability that the noise of any cell without rows passes for rows


@dataclass(frozen=True)
class RegressionFitPlan(CountPlan):
    """The plan of a release of RMSE and R², from public facts only. Neighbours are replace-one.

    Proof. The model is released, so what a record adds is a function of the record alone: nothing, or cells ≥ 0 that
    add up to `step` in the table of residuals, or 0 without an answer, and to `step` in that of labels. Of `moved`
    replaced records the new ones add moved·step in all to each table at most, and the old ones took as much from it:
    four groups of `CountPlan`, the cells of each table that rise and those that fall. Attained by a residual and a
    label that both change from one node to another. Cells are integers, which add up exactly. The figures, and the
    length at which residuals are cut, are functions of the noisy cells.

    An error of a count moves the mean square by the square of the cut instead of the bounds' range.
    """

    bounds: tuple[float, float]  # (lower, upper) bounds of the label
    algorithm: ClassVar[str] = "evaluation"

    @property
    def tally(self) -> ResidualsAndLabels:
        """The tally of the rows."""
        return ResidualsAndLabels(self.partial)

    @property
    def cells(self) -> int:
        """Groups of counts that change: of each of two tables, those that rise and those that fall."""
        return 4

    @property
    def step(self) -> int:
        """The largest sum of a record's cells in one table."""
        return STEPS

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the cells."""
        return (len(LENGTHS) + LABEL_CELLS * (1 + self.partial),)

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return RMSE, in the label's units, R², coverage and the length at which residuals are cut, with their errors.

        Coverage is the share of the rows with an answer. The RMSE is of these; to R² a row without one is as if the
        mean label were predicted: it explains nothing.
        """
        cut = self._cut(noisy)
        figures = self._figures(cut)
        values, widths = figures(noisy), self.half_widths(figures, noisy)
        unit = (self.bounds[1] - self.bounds[0]) / 2
        values[2] = np.clip(values[2], 0.0, 1.0)
        return with_errors((*NAMES, "residual_cut"), np.append(values + 0 * widths, cut * unit), np.append(widths, 0.0))

    def _cut(self, noisy: np.ndarray) -> float:
        """Return the node beyond the longest one that clearly has rows, 2 at most; 2 if none has.

        A row shorter than that is whole: too few to be seen lie beyond it, and they count as long as the cut.
        """
        threshold = self.mechanism.tail(HIDDEN / len(LENGTHS))
        occupied = np.flatnonzero(noisy[: len(LENGTHS)] >= threshold)
        return float(LENGTHS[min(occupied[-1] + 1, len(LENGTHS) - 1)] if len(occupied) else LENGTHS[-1])

    def _figures(self, cut: float) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function from cells to RMSE, R², coverage: NaN without rows, or a variance above its noise."""
        weights, unit = np.square(np.minimum(LENGTHS, cut)), (self.bounds[1] - self.bounds[0]) / 2
        hidden = self.half_width * np.linalg.norm(MOMENTS[2]) * np.sqrt(1 + self.partial)

        def figures(cells: np.ndarray) -> np.ndarray:
            lengths, labels = np.split(np.asarray(cells, np.float64), [len(LENGTHS)])
            answered, every = MOMENTS @ labels[:LABEL_CELLS], MOMENTS @ labels.reshape(-1, LABEL_CELLS).sum(axis=0)
            if min(answered[0], every[0]) <= 0:
                return np.full(3, np.nan)
            errors, middle = lengths @ weights, every[1] / every[0]
            spread, total = (
                squares - 2 * middle * sums + middle**2 * rows for rows, sums, squares in (answered, every)
            )
            explained = (spread - errors) / total if total > hidden else np.nan
            root = np.sqrt(max(errors / answered[0], 0.0)) * unit
            return np.array([root, explained, answered[0] / every[0]])

        return figures


@dataclass(frozen=True)
class RegressionScorePlan(RegressionFitPlan):
    """The same release as a score: metric `rmse` or `r2`, two names of it. Proof. That of `RegressionFitPlan`."""

    metric: str = "r2"

    @property
    def algorithm(self) -> str:  # type: ignore[override]
        """The metric's name."""
        return self.metric

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the figures by name, and their errors as `…_noise`."""
        pairs = super().answer(noisy)
        errors = {f"{name}_noise": pairs[name]["plus_minus"] for name in NAMES}
        return {name: pair["value"] for name, pair in pairs.items()} | errors
