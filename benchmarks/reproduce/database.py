"""dbdp itself: the rows of one task at a time are a table of arrays, and its SQL functions train on them.

The released model is read from `dbdp.models`; its accuracy and its objective are then those of arrays in memory.
"""

import json
import time
from typing import Any

import numpy as np
import psycopg

from benchmarks import binary_copy
from benchmarks.accuracy.datasets import BINARY, CLASSES, REGRESSION
from benchmarks.reproduce.cells import Cell, Measured
from benchmarks.reproduce.tasks import Task, task_of
from benchmarks.reproduce.values import REGULARISATION, measured_model
from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect

OWN = "dbdp:"  # before the name of an algorithm
CANDIDATES = "candidates"  # the option of a tuning that is none of a training


class ArrayDatabase:
    """The server that trains, with the task that is in it."""

    def __init__(self, connection: psycopg.Connection, name: str = "reproduce") -> None:
        self.connection, self.name = connection, name
        self.database = connect(connection)
        self._task: Task | None = None

    def measure(self, cell: Cell) -> Measured:
        """Train a cell in the server, and measure its model."""
        task, request = self.place(cell), request_of(cell, OWN)
        start = time.perf_counter()
        number = self.database.train_in_server(self.name, request)["model"]
        seconds = time.perf_counter() - start
        if request.network is not None:
            return {"training_seconds": seconds, "accuracy": self.network_accuracy(task, number)}
        penalty = json.loads(cell.options).get("regularisation", REGULARISATION)
        return {"training_seconds": seconds, **measured_model(task, cell.loss, self.models(number, task), penalty)}

    def models(self, number: int, task: Task) -> np.ndarray:
        """Return the coefficients of a model, shape (K, d)."""
        query = "select coefficients from dbdp.model where id = %s"
        coefficients = np.array(self.connection.execute(query, [number]).fetchone()[0], float)
        return coefficients.reshape(task.classes, -1)

    def network_accuracy(self, task: Task, number: int) -> float:
        """Return the share of test rows that a network predicts rightly, in SQL."""
        table = f"{self.name}_test"
        self.connection.execute(f"create temporary table if not exists {table} (x float8[], y float8)")
        self.connection.execute(f"truncate {table}")
        binary_copy.write(self.connection, table, task.test, task.test_labels)
        predicted = "dbdp.predict_class(%s, x)::float8" if task.classes > 1 else "dbdp.predict(%s, x)::int * 2 - 1"
        query = f"select avg(({predicted} = y)::int)::float8 from {table}"
        return float(self.connection.execute(query, [number]).fetchone()[0])

    def close(self) -> None:
        """Remove the dataset and its table, also those that an interrupted run left."""
        self._task = None
        self._drop()
        self.connection.execute(f"drop table if exists {self._table}")

    def place(self, cell: Cell, task: Task | None = None) -> Task:
        """Register the rows of a cell, or of a task, with a budget for one training of the cell; return the task.

        A budget of many trainings would change what is measured: its ε decides how far Poisson samples are padded.
        """
        task = task or task_of(cell.dataset, cell.repeat)
        self._copy(task)
        self._drop()
        declared = {
            BINARY: {"positive": "1", "negative": "-1"},
            CLASSES: {"classes": [str(label) for label in range(1, task.classes + 1)]},
            REGRESSION: {"label_bounds": [-1, 1]},
        }[task.data.task]
        features = {"x": {"length": task.train.shape[1], "norm": 1}}
        self.database.register_dataset(
            self.name, self._table, label="y", features=features, epsilon=2 * (cell.epsilon or 1.0),
            delta=max(2 * cell.delta, 1e-9), mode="basic", intercept=False, **declared,
        )  # fmt: skip
        return task

    def _copy(self, task: Task) -> None:
        """Replace the table of the task that is in the database."""
        if self._task is task:
            return
        self.close()
        self.connection.execute(f"create table {self._table} (x float8[] not null, y float8 not null)")
        binary_copy.write(self.connection, self._table, task.train, task.train_labels)
        self.connection.execute(f"vacuum analyze {self._table}")
        self._task = task

    def _drop(self) -> None:
        if any(row["name"] == self.name for row in self.database.datasets()):
            self.database.drop_dataset(self.name)

    @property
    def _table(self) -> str:
        return f"{self.name}_train"


def request_of(cell: Cell, prefix: str, **changed: Any) -> Request:
    """Return the request of a cell, whose method is an algorithm after a prefix, with some options changed."""
    options = {name: value for name, value in json.loads(cell.options).items() if name != CANDIDATES} | changed
    texts = {name: json.dumps(value) if name == "settings" else value for name, value in options.items()}
    return Request(cell.epsilon or 1.0, cell.delta, algorithm=cell.method.removeprefix(prefix), loss=cell.loss, **texts)
