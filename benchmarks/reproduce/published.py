"""Bolt-on as published: SGD with steps min(1/β, 1/(λt)), and noise for 2L/(λmb). Its claim is void.

Mini-batches of b rows do not divide that sensitivity by b (privacy.md §1.3), so the noise is b times too small. It is
written here for the picture alone; TF Privacy's `bolt_on` has the same sensitivity.
Shapes: rows (n, d), labels (n,).
"""

import math

import numpy as np

from benchmarks.reproduce.values import loss_of

PASSES, BATCH, REGULARISATION = 10, 50, 0.001


def bolt_on_as_published(
    rows: np.ndarray, labels: np.ndarray, epsilon: float, delta: float, loss: str = "logistic"
) -> np.ndarray:
    """Return the model of the published algorithm, shape (d,)."""
    random = np.random.default_rng()
    model = descended(rows, labels, loss, random)
    sensitivity = 2 * 1.0 / (REGULARISATION * len(rows) * BATCH)
    if delta > 0:
        return model + sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon * random.normal(size=len(model))
    direction = random.normal(size=len(model))
    length = random.gamma(len(model), sensitivity / epsilon)
    return model + length * direction / np.linalg.norm(direction)


def descended(rows: np.ndarray, labels: np.ndarray, loss: str, random: np.random.Generator) -> np.ndarray:
    """Return the model of SGD over one permutation, within the ball of radius 1/λ, shape (d,)."""
    kind, order = loss_of(loss), random.permutation(len(rows))
    model, update = np.zeros(rows.shape[1]), 0
    for _ in range(PASSES):
        for start in range(0, len(rows), BATCH):
            batch, update = order[start : start + BATCH], update + 1
            step = min(1 / (kind.smoothness + REGULARISATION), 1 / (REGULARISATION * update))
            slopes = kind.derivative(rows[batch] @ model, labels[batch])
            model = model - step * (slopes @ rows[batch] / BATCH + REGULARISATION * model)
            model = model / max(1.0, np.linalg.norm(model) * REGULARISATION)
    return model
