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


def confusion(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return how many rows are in each cell, int64; each row is in one or, without a label of the kind, in none.

    One score above 0 means +1; of several the largest decides, the first of equal ones. A score that is no
    number raises nothing: whatever a row holds, it is in one cell at most.
    """
    classes, numbers = max(scores.shape[1], 2), labels.astype(np.float64)
    if scores.shape[1] == 1:
        valid, true, predicted = np.abs(numbers) == 1.0, (numbers + 1.0) / 2.0, scores[:, 0] > 0.0
    else:
        valid = (numbers >= 1.0) & (numbers <= classes) & (numbers == np.floor(numbers))
        true, predicted = numbers - 1.0, scores.argmax(axis=1)
    cells = classes * true[valid].astype(np.int64) + predicted[valid]
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)
