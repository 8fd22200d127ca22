"""Private evaluation of a released classifier: accuracy, AUC, precision, recall and F1 of one table."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.scores import score_bins
from dbdp.algorithms.scores.counting import CountPlan, quotient, with_errors
from dbdp.checks import between, whole
from dbdp.learning.counts.tallies import Confusion, ScoreBins

THRESHOLD = 0.5
_NEAR = 1e-9  # of a border of bins, for thresholds that are no exact floats
BINS = 20  # fewer than of a histogram alone: the accuracy is a sum over them, and so is its noise


@dataclass(frozen=True)
class EvaluationPlan(CountPlan):
    """The plan of a release of a table of counts, from public facts only. Neighbours are replace-one.

    Proof. For a binary label the table is the histogram of `ScoreBinsPlan`, whose bins do not cross the decision, for
    several classes the matrix of `ConfusionPlan`: a record is in one cell at most, by a function of the record alone.
    Replacing it takes 1 from one cell at most and adds 1 to one at most. All figures are computed from the noisy table,
    so that one charge covers them.
    """

    classes: int  # K: 2 for a binary label
    tally: Confusion | ScoreBins  # the table
    threshold: float = THRESHOLD  # of a binary label: the probability from which a row counts as predicted positive
    algorithm: ClassVar[str] = "evaluation"

    def __post_init__(self) -> None:
        """Check ε, δ, the number of bins, which the decision divides into halves, and the threshold between bins."""
        super().__post_init__()
        if isinstance(self.tally, ScoreBins):
            bins = self.tally.bins
            whole("bins", bins, 2, score_bins.MOST_BINS, f"{BINS} suit most models")
            if bins % 2:
                raise ValueError(
                    f"bins = {bins} must be even, so that the decision lies between two; choose {bins + 1}"
                )
            self._check_threshold(bins)
        elif self.threshold != THRESHOLD:
            raise ValueError(
                f"threshold = {self.threshold!r} needs two classes, and the label has {self.classes}; leave it out"
            )

    def _check_threshold(self, bins: int) -> None:
        """Raise ValueError unless the threshold lies between two bins."""
        between("threshold", self.threshold, 0, 1, f"{THRESHOLD} is the model's own decision")
        if _is_border(self.threshold, bins):
            return
        nearest = min(max(round(self.threshold * bins), 1), bins - 1) / bins
        suited = [each for each in range(BINS, score_bins.MOST_BINS + 1, 2) if _is_border(self.threshold, each)][:1]
        others = "".join(f", or bins => {each}" for each in suited)
        raise ValueError(
            f"threshold = {self.threshold!r} must lie between two of the {bins} bins; choose {nearest!r}{others}"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table; rows without an answer are in one more column."""
        columns = self.tally.bins if isinstance(self.tally, ScoreBins) else self.classes
        return self.classes, columns + self.tally.partial

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the figures."""
        shared = ("accuracy", "majority_share", "coverage")
        return (*shared, "auc", "precision", "recall", "f1") if isinstance(self.tally, ScoreBins) else shared

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return each figure, and half the width of its 95 % interval; None where the noise hides it."""
        values, widths = np.clip(self._figures(noisy), 0.0, 1.0), self.half_widths(self._figures, noisy)
        return with_errors(self.names, values + 0 * widths, widths)  # without a known error none is shown

    def _figures(self, counts: np.ndarray) -> np.ndarray:
        """Return the figures of `names`, NaN where there are no rows.

        The last three are of the positive class: right among the predicted, found among all, and their harmonic mean.
        """
        answered = counts[:, : self.shape[1] - self.tally.partial]
        lost = counts.sum(axis=1) - answered.sum(axis=1)
        if isinstance(self.tally, ScoreBins):
            place = round(self.threshold * self.tally.bins)
            (false, found), every = answered[:, place:].sum(axis=1), counts[1].sum()
            right = answered[0, :place].sum() + found
            shares = quotient([found, found, 2 * found], [found + false, every, found + false + every])
            more = np.append(score_bins.figures(answered, lost)[:1], shares)
        else:
            right, more = np.trace(answered), np.zeros(0)
        return np.append(quotient([right, counts.sum(axis=1).max(), answered.sum()], counts.sum()), more)


def _is_border(threshold: float, bins: int) -> bool:
    """Return whether a threshold lies between two bins."""
    place = round(threshold * bins)
    return 0 < place < bins and abs(place - threshold * bins) <= _NEAR
