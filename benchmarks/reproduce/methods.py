"""How each method of a cell is measured: in the database, or as another system."""

import importlib
import json
import time
from collections.abc import Callable

import numpy as np
import psycopg

from benchmarks import binary_copy
from benchmarks.accuracy import dp_sgd, jax_dp_sgd
from benchmarks.accuracy.datasets import BINARY, CLASSES
from benchmarks.accuracy.in_database import InDatabase
from benchmarks.accuracy.methods import PEERS
from benchmarks.accuracy.scores import figures
from benchmarks.reproduce import traces, tuning
from benchmarks.reproduce.cells import Cell, Measured
from benchmarks.reproduce.database import OWN, ArrayDatabase
from benchmarks.reproduce.figures import CONSTANT, NO_PRIVACY
from benchmarks.reproduce.published import bolt_on_as_published
from benchmarks.reproduce.tasks import Task, task_of
from benchmarks.reproduce.values import least, measured_model

PULLED_SHARE, PULLED_PASSES = 0.05, 10  # rows in an update of a system that needs the rows, and passes


class Laboratory:
    """Everything that measures; one task at a time is in the database."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.arrays, self.columns = ArrayDatabase(connection), InDatabase(connection)
        self._kinds: dict[str, Callable[[Cell, str], Measured]] = {
            "peer:": self._peer,
            "pulled:": self._pulled,
            tuning.PREFIX: lambda cell, _: tuning.measure(self.arrays, cell),
            traces.PREFIX: lambda cell, _: traces.measure(self.arrays, cell),
        }
        self._named: dict[str, Callable[[Cell], Measured]] = {
            NO_PRIVACY: no_privacy,
            CONSTANT: constant,
            "columns": self._columns,
            "published_bolt_on": published,
        }

    def measure(self, cell: Cell) -> Measured:
        """Measure a cell.

        Raises
        ------
        ValueError
            If there is no such method.
        """
        if cell.method.startswith(OWN):
            return self.arrays.measure(cell)
        if cell.method in self._named:
            return self._named[cell.method](cell)
        for prefix, measure in self._kinds.items():
            if cell.method.startswith(prefix):
                return measure(cell, cell.method.removeprefix(prefix))
        raise ValueError(f"there is no method {cell.method!r}")

    def close(self) -> None:
        """Remove what is in the database."""
        self.arrays.close()
        self.columns.close()

    def _columns(self, cell: Cell) -> Measured:
        """Measure dbdp's default where the owner declared the columns themselves."""
        task, start = task_of(cell.dataset, cell.repeat), time.perf_counter()
        with_delta = self.columns.evaluate(task.split, cell.epsilon or 1.0)
        return figures(task.split, with_delta) | {"training_seconds": time.perf_counter() - start}

    def _peer(self, cell: Cell, name: str) -> Measured:
        """Measure another system."""
        task, start = task_of(cell.dataset, cell.repeat), time.perf_counter()
        peer = next(each for each in PEERS if each.name == name)
        measured = figures(task.split, peer.evaluate(task.split, cell.epsilon))
        return measured | {"training_seconds": time.perf_counter() - start}

    def _pulled(self, cell: Cell, name: str) -> Measured:
        """Return the time of a system that needs the rows out of the database, with the pull."""
        task = self.arrays.place(cell)
        importlib.import_module(MODULES[name])
        start = time.perf_counter()
        rows, labels = binary_copy.read(self.arrays.connection, f"{self.arrays.name}_train", task.train.shape[1])
        coefficients = SOLVERS[name](np.asarray(rows, float), np.asarray(labels, float), cell)
        return {"training_seconds": time.perf_counter() - start, **measured_model(task, cell.loss, coefficients)}


def with_diffprivlib(rows: np.ndarray, labels: np.ndarray, cell: Cell) -> np.ndarray:
    """Return the coefficients of diffprivlib's logistic regression, shape (1, d)."""
    from diffprivlib.models import LogisticRegression

    return LogisticRegression(epsilon=cell.epsilon, data_norm=1.0, fit_intercept=False).fit(rows, labels).coef_


def with_jax_privacy(rows: np.ndarray, labels: np.ndarray, cell: Cell) -> np.ndarray:
    """Return the coefficients of JAX-Privacy's DP-SGD, compiled anew, shape (1, d).

    Its accountant would take some seconds more: the noise is dbdp's for the same guarantee.
    """
    options = json.loads(cell.options)
    rate = options.get("batch_size", PULLED_SHARE * len(rows)) / len(rows)
    setting = dp_sgd.Setting(rate, round(options.get("epochs", PULLED_PASSES) / rate), step=4.0, clip=1.0)
    noise = dp_sgd.replaced(cell.epsilon or 1.0, cell.delta, rate, setting.updates)
    jax_dp_sgd.stepping.cache_clear()
    return jax_dp_sgd.train(rows, (labels[:, None] + 1) / 2, setting, noise, BINARY).T


def with_sklearn(rows: np.ndarray, labels: np.ndarray, _: Cell) -> np.ndarray:
    """Return the coefficients of scikit-learn's logistic regression without privacy, shape (1, d)."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1 / (0.001 * len(rows)), fit_intercept=False, max_iter=300).fit(rows, labels).coef_


MODULES = {"diffprivlib": "diffprivlib.models", "jax_privacy": "jax_privacy", "sklearn": "sklearn.linear_model"}
SOLVERS = {"diffprivlib": with_diffprivlib, "jax_privacy": with_jax_privacy, "sklearn": with_sklearn}


def no_privacy(cell: Cell) -> Measured:
    """Measure the minimiser; of several classes scikit-learn's."""
    task = task_of(cell.dataset, cell.repeat)
    start = time.perf_counter()
    if task.data.task == CLASSES:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=100.0, fit_intercept=False, max_iter=100)
        models = model.fit(task.train, task.train_labels).coef_
    else:
        weak = 1e-6 if task.data.task == BINARY else 0.0
        accurate = measured_model(task, cell.loss, least(task, cell.loss, weak)[None])
        drawn = measured_model(task, cell.loss, least(task, cell.loss)[None])
        best = {key: accurate[key] for key in ("accuracy", "rmse") if key in accurate}
        return {"training_seconds": time.perf_counter() - start, **drawn, **best}
    return {"training_seconds": time.perf_counter() - start, **measured_model(task, cell.loss, models)}


def constant(cell: Cell) -> Measured:
    """Measure the larger class of the training rows, or their mean."""
    task = task_of(cell.dataset, cell.repeat)
    if task.data.task not in (BINARY, CLASSES):
        low, high = task.data.declared["label_bounds"]
        error = np.sqrt(np.mean((task.test_labels - task.train_labels.mean()) ** 2))
        return {"rmse": float(error) * (high - low) / 2}
    labels, counts = np.unique(task.train_labels, return_counts=True)
    return {"accuracy": float(np.mean(task.test_labels == labels[counts.argmax()]))}


def published(cell: Cell) -> Measured:
    """Measure bolt-on with the sensitivity that is printed, which is b times too small: its claim is void."""
    task: Task = task_of(cell.dataset, cell.repeat)
    model = bolt_on_as_published(task.train, task.train_labels, cell.epsilon or 1.0, cell.delta, cell.loss)
    return measured_model(task, cell.loss, model[None])
