"""What is measured on the rows that test.

Shapes: truth, predicted and ranked (n,).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import accuracy_score, roc_auc_score, root_mean_squared_error

from benchmarks.accuracy.datasets import BINARY, REGRESSION, Split

ACCURACY, AUC, RMSE = "accuracy", "auc", "rmse"
METRICS = {ACCURACY: "accuracy in %", AUC: "AUC", RMSE: "RMSE"}


@dataclass(frozen=True)
class Prediction:
    """Classes or numbers that were predicted for the test rows, and what ranks them for the AUC of two classes."""

    predicted: np.ndarray
    ranked: np.ndarray | None = None

    @classmethod
    def by_score(cls, scores: np.ndarray, threshold: float = 0.0) -> "Prediction":
        """Return the prediction of two classes by a score."""
        return cls((scores > threshold).astype(int), scores)


def figures(split: Split, predictions: Iterable[Prediction]) -> dict[str, float]:
    """Return the figures by name, each that of the best of the predictions: an advantage that only peers have."""
    every = [figures_of(split, prediction) for prediction in predictions]
    return {name: (min if name == RMSE else max)(each[name] for each in every) for name in every[0]}


def figures_of(split: Split, prediction: Prediction) -> dict[str, float]:
    """Return the figures of one prediction; numbers are clipped to their public bounds for everybody."""
    truth = split.data.truth[split.test]
    if split.data.task == REGRESSION:
        predicted = prediction.predicted.clip(*split.data.declared["label_bounds"])
        return {RMSE: float(root_mean_squared_error(truth, predicted))}
    measured = {ACCURACY: float(accuracy_score(truth, prediction.predicted))}
    if split.data.task == BINARY and prediction.ranked is not None:
        measured[AUC] = float(roc_auc_score(truth, prediction.ranked))
    return measured
