"""What is measured on the rows that test.

Shapes: truth, predicted and ranked (n,); probabilities (n,) of the class 1 of two, or (n, classes).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score, root_mean_squared_error

from benchmarks.accuracy.datasets import BINARY, REGRESSION, Split

ACCURACY, AUC, RMSE, R2 = "accuracy", "auc", "rmse", "r2"
LOG_LOSS, CALIBRATION = "log_loss", "calibration_error"
METRICS = {
    ACCURACY: "accuracy in %",
    AUC: "AUC",
    LOG_LOSS: "log loss",
    CALIBRATION: "calibration error",
    RMSE: "RMSE",
    R2: "R²",
}
LOSSES = (RMSE, LOG_LOSS, CALIBRATION)  # the smaller the better
BINS = 10  # of probabilities, for the calibration error
LEAST = 1e-6  # a probability counts as at least this


@dataclass(frozen=True)
class Prediction:
    """Classes or numbers that were predicted for the test rows, what ranks two classes, and the probabilities."""

    predicted: np.ndarray
    ranked: np.ndarray | None = None
    probabilities: np.ndarray | None = None

    @classmethod
    def by_log_odds(cls, scores: np.ndarray) -> "Prediction":
        """Return the prediction by the log-odds of class 1, shape (n,), or by the scores of softmax, (n, classes)."""
        if scores.ndim == 1:
            return cls((scores > 0).astype(int), scores, 1 / (1 + np.exp(-scores)))
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return cls(scores.argmax(axis=1), None, shares / shares.sum(axis=1, keepdims=True))


def figures(split: Split, predictions: Iterable[Prediction]) -> dict[str, float]:
    """Return the figures by name, each that of the best of the predictions: an advantage that only peers have."""
    every = [figures_of(split, prediction) for prediction in predictions]
    return {name: (min if name in LOSSES else max)(each[name] for each in every) for name in every[0]}


def figures_of(split: Split, prediction: Prediction) -> dict[str, float]:
    """Return the figures of one prediction; numbers are clipped to their public bounds for everybody."""
    truth = split.data.truth[split.test]
    if split.data.task == REGRESSION:
        predicted = prediction.predicted.clip(*split.data.declared["label_bounds"])
        return {RMSE: float(root_mean_squared_error(truth, predicted)), R2: float(r2_score(truth, predicted))}
    measured = {ACCURACY: float(accuracy_score(truth, prediction.predicted))}
    if split.data.task == BINARY and prediction.ranked is not None:
        measured[AUC] = float(roc_auc_score(truth, prediction.ranked))
    return measured | of_probabilities(truth, prediction.probabilities)


def of_probabilities(truth: np.ndarray, probabilities: np.ndarray | None) -> dict[str, float]:
    """Return log loss and calibration error; nothing without probabilities."""
    if probabilities is None:
        return {}
    pairs = probabilities if probabilities.ndim == 2 else np.stack([1 - probabilities, probabilities], axis=1)
    bounded = np.clip(pairs, LEAST, 1.0)
    bounded /= bounded.sum(axis=1, keepdims=True)
    loss = log_loss(truth, bounded, labels=np.arange(pairs.shape[1]))
    return {LOG_LOSS: float(loss), CALIBRATION: calibration_error(truth, bounded)}


def calibration_error(truth: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean distance of a class's frequency from its probability, over bins of it and over classes."""
    errors = []
    for place, said in enumerate(probabilities.T):
        bins = np.minimum((said * BINS).astype(int), BINS - 1)
        gaps = np.bincount(bins, (truth == place) - said, BINS)
        errors.append(np.abs(gaps).sum() / len(truth))
    return float(np.mean(errors))
