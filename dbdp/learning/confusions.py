"""Confusion matrices of packed rows: how many rows of each class a model takes for each class.

Shapes: rows (n, stride) float32 as in `blocks`, models (outputs, d), scores (n, outputs); a matrix is (K, K),
true × predicted class, K = 2 for one output: -1 and +1, the first two places.
"""

import numpy as np


def linear_scores(models: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the scores of linear models. A row's depend on that row and the models alone, to the last bit.

    Each is a sum over the row's own products, in an order that its length decides: not on the number of the
    other rows, as a matrix product of BLAS does.
    """
    features = rows[:, : models.shape[1]].astype(np.float64)
    scores = np.empty((len(rows), len(models)))
    with np.errstate(all="ignore"):
        for output, model in enumerate(models):
            scores[:, output] = (features * model).sum(axis=1)
    return scores


def true_classes(labels: np.ndarray, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows have a label of the kind, and the place of its class, from 0, for each of these."""
    numbers = labels.astype(np.float64)
    if outputs == 1:
        valid, places = np.abs(numbers) == 1.0, (numbers + 1.0) / 2.0
    else:
        valid, places = (numbers >= 1.0) & (numbers <= outputs) & (numbers == np.floor(numbers)), numbers - 1.0
    return valid, places[valid].astype(np.int64)


def confusion(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return how many rows are in each cell, int64; each row is in one or, without a label of the kind, in none.

    One score above 0 means +1; of several the largest decides, the first of equal ones. A score that is no
    number raises nothing: whatever a row holds, it is in one cell at most.
    """
    classes = max(scores.shape[1], 2)
    valid, true = true_classes(labels, scores.shape[1])
    predicted = scores[:, 0] > 0.0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    return np.bincount(classes * true + predicted[valid], minlength=classes**2).reshape(classes, classes)
