"""Private AUC, ROC curve and calibration of a released model for one class.

All are computed from one noisy histogram: rows of the other classes and rows of the class, by the predicted
probability of the class. Shapes: counts (2, B), B bins of [0, 1]; the other classes first. Rows without an answer are
in one more bin, (2, B + 1): a pair with one of them counts as in the wrong order. Brier score, log loss and calibration
are of the rows with an answer.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.scores.counting import COVERED, CountPlan, quotient, shown, shown_all
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
        return 2, self.tally.bins + self.tally.partial

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the area under the ROC curve, the curve, Brier score, log loss and the calibration of each bin."""
        names, bins = ("auc", "brier", "log_loss", "coverage"), self.tally.bins
        most = np.where(np.arange(4 + bins) == 2, np.inf, 1.0)  # a log loss may be above 1
        values, widths = np.clip(self._figures(noisy), 0.0, most), self.half_widths(self._figures, noisy)
        answer = {name: shown(value) for name, value in zip(names, values, strict=False)}
        answer |= {f"{name}_noise": shown(width) for name, width in zip(names, widths, strict=False)}
        answer |= {"unanswered": noisy[:, bins].tolist()} if self.tally.partial else COVERED
        counts, lost = noisy[:, :bins], noisy[:, bins:].sum(axis=1)
        table = zip(shown_all(values[4:]), shown_all(widths[4:]), counts.sum(axis=0).tolist(), strict=True)
        return answer | {
            "auc_discretisation": shown(discretisation(counts)),
            "roc": roc(counts, lost),
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
            "counts": counts.tolist(),
            "count_noise": self.half_width,
        }

    def _figures(self, cells: np.ndarray) -> np.ndarray:
        """Return AUC, Brier score, log loss, coverage and the share of the class in each bin."""
        counts, lost = cells[:, : self.tally.bins], cells[:, self.tally.bins :].sum(axis=1)
        return np.insert(figures(counts, lost), 3, quotient(counts.sum(), cells.sum()))


def figures(counts: np.ndarray, lost: np.ndarray | float = 0.0) -> np.ndarray:
    """Return AUC, Brier score, log loss and the share of the class in each bin, NaN where there are no rows.

    `lost` are the rows of the others, and of the class, that have no answer, shape (2,).
    A row's probability is replaced by the middle of its bin, and two rows of a bin count as a tie.
    Counts below 0 are not clipped, so that sums of them and of products of independent ones are unbiased.
    """
    others, own = np.asarray(counts, np.float64)
    middles = (np.arange(len(own)) + 0.5) / len(own)
    brier = own @ (1 - middles) ** 2 + others @ middles**2
    log_loss = -(own @ np.log(middles) + others @ np.log1p(-middles))
    rows = own.sum() + others.sum()
    whole = [areas(np.asarray(counts, np.float64), lost), *quotient([brier, log_loss], rows)]
    return np.append(whole, quotient(own, own + others))


def areas(counts: np.ndarray, lost: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the AUC of each of several histograms (…, 2, B) of floats, as `figures` has it, shape (…)."""
    others, own = counts[..., 0, :], counts[..., 1, :]
    pairs = np.sum(own * (np.cumsum(others, axis=-1) - others / 2), axis=-1)
    every = np.maximum(counts.sum(axis=-1) + lost, 0.0)
    return quotient(pairs, every[..., 0] * every[..., 1])


def discretisation(counts: np.ndarray) -> float:
    """Return a bound on the error of the AUC from binning: half the share of pairs within bins.

    For exact counts it is a bound; for noisy ones it is noisy too.
    """
    others, own = np.maximum(counts, 0).astype(np.float64)
    return float(quotient(others @ own / 2, others.sum() * own.sum()))


def roc(counts: np.ndarray, lost: np.ndarray | float = 0.0) -> list[dict[str, float | None]]:
    """Return the ROC curve: both rates for each threshold, from 1 down, monotone.

    Rows of the others without an answer are false positives at each, and those of the class are never found.
    """
    thresholds = (np.arange(counts.shape[1])[::-1] / counts.shape[1]).tolist()
    false_ones = (np.zeros(2) + lost) * [1, 0]
    found = np.cumsum(counts[:, ::-1], axis=1) + false_ones[:, None]
    shares = quotient(found, (counts.sum(axis=1) + lost)[:, None])
    false, true = np.clip(np.maximum.accumulate(shares, axis=1), 0.0, 1.0)
    points = zip(thresholds, shown_all(false), shown_all(true), strict=True)
    return [{"threshold": at, "false_positive_rate": wrong, "true_positive_rate": right} for at, wrong, right in points]
