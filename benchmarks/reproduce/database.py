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
from dbdp.interfaces.python.database import connect

BUDGET = 1e6  # that no run exhausts: each cell is an experiment of its own
OWN = "dbdp:"  # before the name of an algorithm


class ArrayDatabase:
    """The server that trains, with the task that is in it."""

    def __init__(self, connection: psycopg.Connection, name: str = "reproduce") -> None:
        self.connection, self.name = connection, name
        self.database = connect(connection)
        self._task: Task | None = None

    def measure(self, cell: Cell) -> Measured:
        """Train a cell in the server, and measure its model."""
        task = task_of(cell.dataset, cell.repeat)
        self.place(task)
        options: dict[str, Any] = json.loads(cell.options)
        algorithm = cell.method.removeprefix(OWN)
        request = Request(cell.epsilon or 1.0, cell.delta, algorithm=algorithm, loss=cell.loss, **textual(options))
        start = time.perf_counter()
        number = self.database.train_in_server(self.name, request)["model"]
        seconds = time.perf_counter() - start
        if request.network is not None:
            return {"training_seconds": seconds, "accuracy": self.network_accuracy(task, number)}
        penalty = options.get("regularisation", REGULARISATION)
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
        if any(row["name"] == self.name for row in self.database.datasets()):
            self.database.drop_dataset(self.name)
        self.connection.execute(f"drop table if exists {self.name}_train")

    def place(self, task: Task) -> None:
        """Replace the task that is in the database."""
        if self._task is task:
            return
        self.close()
        table = f"{self.name}_train"
        self.connection.execute(f"create table {table} (x float8[] not null, y float8 not null)")
        binary_copy.write(self.connection, table, task.train, task.train_labels)
        self.connection.execute(f"vacuum analyze {table}")
        declared = {
            BINARY: {"positive": "1", "negative": "-1"},
            CLASSES: {"classes": [str(label) for label in range(1, task.classes + 1)]},
            REGRESSION: {"label_bounds": [-1, 1]},
        }[task.data.task]
        features = {"x": {"length": task.train.shape[1], "norm": 1}}
        self.database.register_dataset(
            self.name, table, label="y", features=features, epsilon=BUDGET, delta=0.1, mode="basic", intercept=False,
            **declared,
        )  # fmt: skip
        self._task = task


def textual(options: dict[str, Any]) -> dict[str, Any]:
    """Return options as a request has them: settings of one algorithm are JSON."""
    return {name: json.dumps(value) if name == "settings" else value for name, value in options.items()}
