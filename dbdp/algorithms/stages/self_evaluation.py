"""A table of the noisy model's own scores: one more release, from which it is calibrated and evaluated.

privacy.md §21. The rows are those of the training. Shapes: a table is (K, 2, NODES), K the outputs.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbdp.algorithms.plan import Released
from dbdp.algorithms.rows import Rows
from dbdp.algorithms.scores.counting import quotient, shown, widths_of, with_errors
from dbdp.algorithms.scores.score_bins import areas
from dbdp.algorithms.stages.score_calibration import Calibration, applied, calibration, logistic, none
from dbdp.algorithms.stages.table_noise import GaussianTable, LaplaceTable
from dbdp.learning.counts import score_tables, tallies
from dbdp.learning.losses import Logistic, Loss
from dbdp.learning.rows.column_blocks import RowBlocks

_DRAWS = 200  # of noise, for the intervals of the figures
_TOGETHER = 1 << 17  # cells of several draws that are evaluated together: a MB


def are_log_odds(loss: Loss) -> bool:
    """Return whether the scores of a loss are log-odds, which a table calibrates: a weight of a class moves them."""
    return loss.name == Logistic.name and loss.positive_weight == 1


@dataclass(frozen=True)
class SelfEvaluation:
    """The release of the table of scores, from public facts only."""

    # outputs, dimension: models, and the coordinates of each.
    outputs: int
    dimension: int
    softmax: bool  # whether the probabilities of several classes are softmax's
    noise: GaussianTable | LaplaceTable
    calibrates: bool = True  # whether the scores are log-odds, which the table calibrates
    rows_of: RowBlocks | None = None  # the blocks of rows in places

    def evaluated(self, rows: Rows, released: Released, constant: float | None = None) -> Released:
        """Return a release of linear models, calibrated and with figures of itself: one pass over the packed rows.

        `constant` is about the last coordinate of a row, which the intercept multiplies. It is None without an
        intercept, and where the table measures it.
        """
        return self.described(self.table(rows, released.models), released, constant)

    def described(self, table: "ScoreTable", released: Released, constant: float | None) -> Released:
        """Return a release of linear models, calibrated and with figures of itself, by the table of its scores."""
        constant = constant if table.constant is None else table.constant
        found = table.calibration(has_offset=constant is not None) if self.calibrates else none(self.outputs)
        own = dict(released.figures)
        if self.calibrates:
            own["score_calibration"] = {"offsets": found.offsets.tolist(), "slope": found.slope}
        own["evaluation"] = table.evaluation(found)
        return replace(applied(found, released, constant), figures=own)

    def table(self, rows: Rows, models: np.ndarray) -> "ScoreTable":
        """Return the noisy table of the scores of released models (K, d) on the packed rows: one pass."""
        has_constant = self.noise.has_constant
        last = np.arange(self.dimension) == self.dimension - 1  # no matrix of d², which may not fit in memory
        scored = np.vstack([models, last]) if has_constant else models
        tally = tallies.Scores(self.softmax, has_constant)
        described = tallies.described(tally, outputs=len(scored), dimension=self.dimension, rows_of=self.rows_of)
        noisy = self.noise.release(rows.tally(scored, described))
        cells = self.outputs * 2 * score_tables.NODES
        counts = noisy[:cells].reshape(self.outputs, 2, score_tables.NODES)
        return ScoreTable(counts, self.noise, self._constant(counts, noisy[cells]) if has_constant else None)

    def _constant(self, counts: np.ndarray, total: float) -> float:
        """Return about the mean of the rows' last coordinate, from 1/√d to 1."""
        rows = max(counts.sum() / self.outputs, 1.0)
        return min(max(float(total) / rows, 1 / math.sqrt(self.dimension)), 1.0)


@dataclass(frozen=True)
class ScoreTable:
    """A noisy table of scores, which is public, and what follows from it."""

    counts: np.ndarray  # shape (K, 2, NODES): rows of the other classes, then of the class
    noise: GaussianTable | LaplaceTable  # of each cell
    constant: float | None = None  # about the mean of the rows' last coordinate, if it was asked for

    @property
    def scale(self) -> float:
        """σ of a cell."""
        return self.noise.deviation

    def calibration(self, *, has_offset: bool) -> Calibration:
        """Return the calibration of the scores."""
        return calibration(self.counts, self.scale, has_offset=has_offset)

    def evaluation(self, calibrated: Calibration) -> dict[str, Any]:
        """Return figures of the calibrated model on the rows of the training, each with its ± (95 %).

        The ± is of the noise for privacy; a figure that it hides is None. For one class: accuracy, fraction of the
        majority class, AUC and the calibration curve. For several: the mean AUC of each class against the rest, and a
        curve of all together.
        """
        values = self._figures(self.counts, calibrated)
        widths = widths_of(self._figures_of_draws(calibrated), values)
        names = ["accuracy", "majority_share", "auc"] if len(self.counts) == 1 else ["majority_share", "mean_auc"]
        single = len(names)
        shown_values = np.clip(values[:single], 0.0, 1.0) + 0 * widths[:single]
        single_figures = with_errors(names, shown_values, widths[:single])
        curve = self._curve(calibrated, np.clip(values[single:], 0.0, 1.0), widths[single:])
        return single_figures | {"calibration": curve}

    def _figures_of_draws(self, calibrated: Calibration) -> np.ndarray:
        """Return the figures of tables with more noise, (_DRAWS, f)."""
        size = max(1, _TOGETHER // self.counts.size)
        sizes = [min(size, _DRAWS - first) for first in range(0, _DRAWS, size)]
        draws = (self.noise.simulated((each, *self.counts.shape)) for each in sizes)
        return np.concatenate([self._figures(self.counts + noise, calibrated) for noise in draws])

    def _figures(self, counts: np.ndarray, calibrated: Calibration) -> np.ndarray:
        """Return the single figures, then the share of the class at each node, NaN where there are no rows.

        Tables (…, K, 2, NODES) have figures (…, f).
        """
        area, of_classes, total = areas(counts).mean(axis=-1), counts.sum(axis=-1), counts.sum(axis=-3)
        if counts.shape[-3] > 1:
            own = of_classes[..., 1]
            single = [quotient(own.max(axis=-1), own.sum(axis=-1)), area]
        else:
            positive, both = self._positive(calibrated), of_classes[..., 0, :]
            right = counts[..., 0, 1, :] @ positive + counts[..., 0, 0, :] @ (1 - positive)
            single = [*quotient([right, both.max(axis=-1)], both.sum(axis=-1)), area]
        shares = quotient(total[..., 1, :], total.sum(axis=-2))
        return np.concatenate([np.stack(single, axis=-1), shares], axis=-1)

    def _positive(self, calibrated: Calibration) -> np.ndarray:
        """Return the share of each node's range of scores that the calibrated model decides as the class."""
        edges = score_tables.edges()
        threshold = -float(calibrated.shifts[0]) / calibrated.slope
        widths = np.maximum(np.diff(edges), 2.0**-52)
        return np.clip((edges[1:] - threshold) / widths, 0.0, 1.0)

    def _curve(self, calibrated: Calibration, shares: np.ndarray, widths: np.ndarray) -> list[dict[str, Any]]:
        """Return the calibration curve: at each node with clearly more rows than noise, what is said and what is so."""
        rows = self.counts.sum(axis=(0, 1))
        clear = rows > 4 * self.scale * math.sqrt(2 * len(self.counts))
        each = logistic(calibrated.shifts[:, None] + calibrated.slope * score_tables.nodes())
        weights = np.maximum(self.counts.sum(axis=1), self.scale)
        said = (each * weights).sum(axis=0) / weights.sum(axis=0)
        points = zip(said.tolist(), shares.tolist(), widths.tolist(), rows.tolist(), clear.tolist(), strict=True)
        return [
            {"predicted": predicted, "observed": shown(share), "plus_minus": shown(width), "rows": round(count)}
            for predicted, share, width, count, is_clear in points
            if is_clear
        ]
