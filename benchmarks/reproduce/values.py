"""What is measured of a model: accuracy on the test rows, and the objective on the training rows.

Shapes: models (K, d).
"""

from functools import lru_cache

import numpy as np
from scipy.optimize import minimize

from benchmarks.accuracy.datasets import BINARY, CLASSES
from benchmarks.reproduce.cells import Measured
from benchmarks.reproduce.tasks import Task
from dbdp.learning.losses import Loss, loss_named

REGULARISATION = 0.001  # λ of the objective that is drawn: RSGD-AR §5.1, DP-BLSGD §5.1


def loss_of(name: str) -> Loss:
    """Return a loss with its default width, the papers' 0.5 for the Huber SVM."""
    return loss_named(name, width=None, positive_weight=1.0, radius=1.0 if name == "squared" else None)


def measured_model(task: Task, loss: str, models: np.ndarray, regularisation: float = REGULARISATION) -> Measured:
    """Return accuracy or root mean squared error, and the objective with how far it is above the least."""
    if task.data.task == CLASSES:
        return {"accuracy": accuracy(task, models)}
    value = objective(task, loss, models[0], regularisation)
    best = objective(task, loss, least(task, loss, regularisation), regularisation)
    above = {"objective": value, "excess": value - best}
    if task.data.task == BINARY:
        return {"accuracy": accuracy(task, models), **above}
    low, high = task.data.declared["label_bounds"]
    error = np.sqrt(np.mean(((task.test @ models[0]).clip(-1, 1) - task.test_labels) ** 2)) * (high - low) / 2
    return {"rmse": float(error), **above}


def accuracy(task: Task, models: np.ndarray) -> float:
    """Return the share of test rows whose class models predict rightly."""
    scores = task.test @ models.T
    predicted = scores.argmax(axis=1) + 1 if task.classes > 1 else np.where(scores[:, 0] > 0, 1, -1)
    return float(np.mean(predicted == task.test_labels))


def objective(task: Task, loss: str, model: np.ndarray, regularisation: float = REGULARISATION) -> float:
    """Return the mean loss of the training rows with the regulariser."""
    losses = loss_of(loss).value(task.train @ model, task.train_labels)
    return float(losses.mean() + regularisation / 2 * model @ model)


@lru_cache(maxsize=8)
def least(task: Task, loss: str, regularisation: float = REGULARISATION) -> np.ndarray:
    """Return the minimiser without privacy, by L-BFGS, shape (d,)."""
    kind = loss_of(loss)

    def value(model: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = kind.derivative(task.train @ model, task.train_labels)
        return objective(task, loss, model, regularisation), task.train.T @ slopes / len(
            task.train
        ) + regularisation * model

    return minimize(value, np.zeros(task.train.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
