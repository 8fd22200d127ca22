"""Private AUC, ROC curve and calibration of a released model for one class.

All are computed from one noisy histogram: rows of the other classes and rows of the class, by the predicted
probability of the class. Shapes: counts (2, B), B bins of [0, 1]; the other classes first.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.scores.counting import CountPlan, quotient, shown, shown_all
from dbdp.checks import whole
from dbdp.learning.counts.tallies import ScoreBins

BINS, MOST_BINS = 50, 1000


@dataclass(frozen=True)
class ScoreBinsPlan(CountPlan):
    """The plan of a release of the histogram, from public facts only. Neighbours are replace-one.

    Proof. The model is released and the bins are public, so a record's cell, if it has one, is a function of
    the record alone, as in `ConfusionPlan`: replacing it takes 1 from one cell at most and adds 1 to one at most.
    """

    tally: ScoreBins  # the bins, and their class
    algorithm: ClassVar[str] = "score_bins"

    def __post_init__(self) -> None:
        """Check ε, δ and the number of bins."""
        super().__post_init__()
        bins = self.tally.bins
        whole("bins", bins, 2, MOST_BINS, f"{BINS} suit most models")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the histogram."""
        return 2, self.tally.bins

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the area under the ROC curve, the curve, Brier score, log loss and the calibration of each bin."""
        names = ("auc", "brier", "log_loss")
        most = np.where(np.arange(3 + self.tally.bins) == 2, np.inf, 1.0)  # a log loss may be above 1
        values, widths = np.clip(figures(noisy), 0.0, most), self.half_widths(figures, noisy)
        answer = {name: shown(value) for name, value in zip(names, values, strict=False)}
        answer |= {f"{name}_noise": shown(width) for name, width in zip(names, widths, strict=False)}
        table = zip(shown_all(values[3:]), shown_all(widths[3:]), noisy.sum(axis=0).tolist(), strict=True)
        return answer | {
            "auc_discretisation": shown(discretisation(noisy)),
            "roc": roc(noisy),
            "calibration": [
                {
                    "lower": place / self.tally.bins,
                    "upper": (place + 1) / self.tally.bins,
                    "rows": max(rows, 0),
                    "observed": share,
                    "observed_noise": width,
                }
                for place, (share, width, rows) in enumerate(table)
            ],
            "counts": noisy.tolist(),
            "count_noise": self.half_width,
        }


def figures(counts: np.ndarray) -> np.ndarray:
    """Return AUC, Brier score, log loss and the share of the class in each bin, NaN where there are no rows.

    A row's probability is replaced by the middle of its bin, and two rows of a bin count as a tie.
    Counts below 0 are not clipped, so that sums of them and of products of independent ones are unbiased.
    """
    others, own = np.asarray(counts, np.float64)
    middles = (np.arange(len(own)) + 0.5) / len(own)
    pairs = own @ (np.cumsum(others) - others / 2)
    brier = own @ (1 - middles) ** 2 + others @ middles**2
    log_loss = -(own @ np.log(middles) + others @ np.log1p(-middles))
    rows = own.sum() + others.sum()
    areas = [quotient(pairs, max(own.sum(), 0.0) * max(others.sum(), 0.0)), *quotient([brier, log_loss], rows)]
    return np.append(areas, quotient(own, own + others))


def discretisation(counts: np.ndarray) -> float:
    """Return a bound on the error of the AUC from binning: half the share of pairs within bins.

    For exact counts it is a bound; for noisy ones it is noisy too.
    """
    others, own = np.maximum(counts, 0).astype(np.float64)
    return float(quotient(others @ own / 2, others.sum() * own.sum()))


def roc(counts: np.ndarray) -> list[dict[str, float | None]]:
    """Return the ROC curve: both rates for each threshold, from 1 down, monotone."""
    thresholds = (np.arange(counts.shape[1])[::-1] / counts.shape[1]).tolist()
    shares = quotient(np.cumsum(counts[:, ::-1], axis=1), counts.sum(axis=1, keepdims=True))
    false, true = np.clip(np.maximum.accumulate(shares, axis=1), 0.0, 1.0)
    points = zip(thresholds, shown_all(false), shown_all(true), strict=True)
    return [{"threshold": at, "false_positive_rate": wrong, "true_positive_rate": right} for at, wrong, right in points]
