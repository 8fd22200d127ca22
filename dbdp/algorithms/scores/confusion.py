"""Private accuracy and confusion matrix of a released model.

A record with a label of the declaration is in one cell: true × predicted class; one without a label is in none. A
record with a label for which the model has no answer is counted as wrong. Shapes: matrices are (K, K), K classes, two
for a binary label (-1, +1), or (K, K + 1) with those without an answer in the last column.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.scores.counting import COVERED, CountPlan, quotient, shown, shown_all
from dbdp.learning.counts.tallies import Confusion, Correct

# An accuracy alone does not show whether a model learned anything, and how large the classes are is not public.
COMPARE_WITH = "fraction of the majority class: metric 'confusion' has it"


@dataclass(frozen=True)
class ConfusionPlan(CountPlan):
    """The plan of a release of a confusion matrix, from public facts only. Neighbours are replace-one.

    Proof. The model is released, so a record's cell, if it has one, is a function of the record alone (and
    of its place among the rows, which neighbours share, where a score's last bit depends on that). Replacing it
    takes 1 from one cell at most and adds 1 to one at most: two groups, as `CountPlan` has them.
    """

    classes: int = 2
    algorithm: ClassVar[str] = "confusion"

    @property
    def tally(self) -> Confusion:
        """The tally of the rows."""
        return Confusion(self.partial)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix."""
        return self.classes, self.classes + self.partial

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the matrix, accuracy, precision, recall and F1 of each class, coverage, and their errors."""
        accuracy, coverage, *others = self.half_widths(_figures, noisy).tolist()
        precision, recall, f1 = np.split(np.array(others), 3)
        answer = {
            "matrix": noisy[:, : self.classes].tolist(),
            "matrix_noise": self.half_width,
            **scores(noisy),
            "accuracy_noise": shown(accuracy),
            "precision_noise": shown_all(precision),
            "recall_noise": shown_all(recall),
            "f1_noise": shown_all(f1),
        }
        if not self.partial:
            return answer | COVERED
        return answer | {"coverage_noise": shown(coverage), "unanswered": noisy[:, self.classes].tolist()}


@dataclass(frozen=True)
class AccuracyPlan(CountPlan):
    """The plan of a release of the accuracy: the share of all rows whose predicted class is right.

    Proof. A record is counted or not, by a function of the record alone, as in `ConfusionPlan`: replacing it moves
    the one count by 1. The number of rows is public; a row without a label is not counted, so it lowers the share.
    Where the number of rows is private, or a row may have no answer, right and wrong rows and those without an answer
    are separate counts. A record is in one at most, so that they are the two groups of `CountPlan`, and the
    accuracy is a quotient: a share of the rows with a label.
    """

    algorithm: ClassVar[str] = "accuracy"

    @property
    def tally(self) -> Correct:
        """The tally of the rows."""
        return Correct(wrong=self.is_quotient, partial=self.partial)

    @property
    def cells(self) -> int:
        """Groups of counts that change."""
        return 2 if self.is_quotient else 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The right rows; of a share the wrong ones too, and those without an answer."""
        return (1 + self.is_quotient + self.partial,)

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return accuracy and coverage, within [0, 1], and their errors; None where the noise leaves no rows."""
        if self.is_quotient:
            figures, widths = _shares(np.maximum(noisy, 0)), self.half_widths(_shares, noisy)
            answer = {"accuracy": shown(figures[0]), "accuracy_noise": shown(widths[0])}
            return answer | self.coverage(figures[1], widths[1])
        share = min(max(int(noisy[0]) / self.rows, 0.0), 1.0)
        error = self.half_width / self.rows
        return {"accuracy": share, "accuracy_noise": error, **COVERED, "compare_with": COMPARE_WITH}


def scores(matrix: np.ndarray) -> dict[str, Any]:
    """Return accuracy, majority fraction, coverage, and precision, recall and F1 of each class; None without rows.

    It is a function of the released matrix, and costs nothing. Cells below 0 count as 0.
    """
    counts = np.maximum(matrix, 0)
    shares = _figures(counts)
    (accuracy, coverage), (precision, recall, f1) = shares[:2], np.split(shares[2:], 3)
    largest = quotient(counts.sum(axis=1).max(), counts.sum())
    return {
        "accuracy": shown(accuracy),
        "majority_share": shown(float(largest)),
        "coverage": shown(coverage),
        "precision": shown_all(precision),
        "recall": shown_all(recall),
        "f1": shown_all(f1),
    }


def _shares(counts: np.ndarray) -> np.ndarray:
    """Return the shares of right rows and of rows with an answer, shape (2,), NaN where there are no rows."""
    return quotient([counts[0], counts[:2].sum()], counts.sum())


def _figures(matrix: np.ndarray) -> np.ndarray:
    """Return accuracy, coverage, precisions, recalls and F1s, shape (2 + 3K,), NaN where there are no rows."""
    right, answered = np.diag(matrix), matrix[:, : len(matrix)]
    predicted, true = answered.sum(axis=0), matrix.sum(axis=1)
    parts = [right.sum(), answered.sum(), *right, *right, *(2 * right)]
    return quotient(parts, [*[matrix.sum()] * 2, *predicted, *true, *(predicted + true)])
