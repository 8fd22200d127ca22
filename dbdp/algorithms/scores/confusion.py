"""Private accuracy and confusion matrix of a released model.

A record with a label of the declaration is in one cell: true × predicted class. A record without one, or whose
features cannot be packed, is in none. Shapes: matrices are (K, K), K classes, two for a binary label (-1, +1).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.scores.counting import CountPlan, quotient, shown, shown_all
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
    tally: ClassVar[Confusion] = Confusion()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix."""
        return self.classes, self.classes

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the matrix, accuracy, precision and recall, and their errors."""
        accuracy, *others = self.half_widths(_figures, noisy).tolist()
        precision, recall = np.split(np.array(others), 2)
        return {
            "matrix": noisy.tolist(),
            "matrix_noise": self.half_width,
            **scores(noisy),
            "accuracy_noise": shown(accuracy),
            "precision_noise": shown_all(precision),
            "recall_noise": shown_all(recall),
        }


@dataclass(frozen=True)
class AccuracyPlan(CountPlan):
    """The plan of a release of the accuracy: the share of all rows whose predicted class is right.

    Proof. A record is counted or not, by a function of the record alone, as in `ConfusionPlan`: replacing it moves
    the one count by 1. The number of rows is public; a row without a label, or that cannot be packed, is not
    counted, so it lowers the share. Where the number of rows is private, right and wrong rows are two counts, the
    first two groups of `CountPlan`, and the accuracy is their quotient: a share of the rows with a label.
    """

    algorithm: ClassVar[str] = "accuracy"

    @property
    def tally(self) -> Correct:
        """The tally of the rows."""
        return Correct(wrong=not self.has_public_rows)

    @property
    def cells(self) -> int:
        """Groups of counts that change."""
        return self.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The right rows; where the number of rows is private, the wrong ones too."""
        return (1,) if self.has_public_rows else (2,)

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the accuracy, within [0, 1], and its error; None where the noise leaves no rows."""
        if not self.has_public_rows:
            figure, width = _right_share(np.maximum(noisy, 0))[0], self.half_widths(_right_share, noisy)[0]
            return {"accuracy": shown(figure), "accuracy_noise": shown(width)}
        share = min(max(int(noisy[0]) / self.rows, 0.0), 1.0)
        return {"accuracy": share, "accuracy_noise": self.half_width / self.rows, "compare_with": COMPARE_WITH}


def scores(matrix: np.ndarray) -> dict[str, Any]:
    """Return accuracy, the fraction of the majority class, and precision and recall of each; None without rows.

    It is a function of the released matrix, and costs nothing. Cells below 0 count as 0.
    """
    counts = np.maximum(matrix, 0)
    accuracy, precision, recall = np.split(_figures(counts), [1, 1 + len(matrix)])
    largest = quotient(counts.sum(axis=1).max(), counts.sum())
    return {
        "accuracy": shown(accuracy[0]),
        "majority_share": shown(float(largest)),
        "precision": shown_all(precision),
        "recall": shown_all(recall),
    }


def _right_share(counts: np.ndarray) -> np.ndarray:
    """Return right / (right + wrong), shape (1,), NaN where there are no rows."""
    return quotient(counts[:1], counts.sum())


def _figures(matrix: np.ndarray) -> np.ndarray:
    """Return accuracy, precisions and recalls, shape (1 + 2K,), NaN where there are no rows."""
    right = np.diag(matrix)
    return quotient([right.sum(), *right, *right], [matrix.sum(), *matrix.sum(axis=0), *matrix.sum(axis=1)])
