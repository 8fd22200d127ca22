"""Private tuning on disjoint portions: Algorithm 3 of Wu et al. 2017.

dp_tune does it for algorithms that perturb a model once. Those that add noise while they train it does not offer: for
these every portion is trained in the database by itself, and dbdp's exponential mechanism chooses by the errors on the
last one, which is the same algorithm.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.reproduce.cells import Cell, Measured
from benchmarks.reproduce.database import CANDIDATES, ArrayDatabase, request_of
from benchmarks.reproduce.tasks import Task, task_of
from benchmarks.reproduce.values import accuracy, measured_model
from dbdp.algorithms.catalogue import PERTURBED_ONCE
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.privacy.selection import ExponentialMechanism

PREFIX = "tune:"


def measure(database: ArrayDatabase, cell: Cell) -> Measured:
    """Tune among the candidates of a cell, and measure the chosen model."""
    task, start = task_of(cell.dataset, cell.repeat), time.perf_counter()
    tuned = with_dp_tune if cell.method.removeprefix(PREFIX) in PERTURBED_ONCE else portion_by_portion
    models = tuned(database, cell, task)
    return {"training_seconds": time.perf_counter() - start, **measured_model(task, cell.loss, models)}


def with_dp_tune(database: ArrayDatabase, cell: Cell, task: Task) -> np.ndarray:
    """Return the models that dp_tune chooses, shape (K, d)."""
    database.place(cell)
    request = TuningRequest(request_of(cell, PREFIX), tuple(json.loads(cell.options)[CANDIDATES]))
    return database.models(database.database.tune(database.name, request).id, task)


def portion_by_portion(database: ArrayDatabase, cell: Cell, task: Task) -> np.ndarray:
    """Return the models of the candidate that is chosen by its errors on the last portion, shape (K, d)."""
    candidates = json.loads(cell.options)[CANDIDATES]
    *training, scored = portions(task, len(candidates) + 1)
    models = []
    for portion, candidate in zip(training, candidates, strict=True):
        database.place(cell, portion)
        trained = database.database.train_in_server(database.name, request_of(cell, PREFIX, **candidate))
        models.append(database.models(trained["model"], task))
    errors = [round(len(scored.test) * (1 - accuracy(scored, each))) for each in models]
    return models[ExponentialMechanism(cell.epsilon or 1.0).choose(errors)]


def portions(task: Task, count: int) -> Iterator[Task]:
    """Yield the rows for training in portions of equal size, drawn at random; each is tested on itself."""
    for places in np.array_split(np.random.default_rng().permutation(len(task.train)), count):
        rows, labels = task.train[places], task.train_labels[places]
        yield replace(task, train=rows, train_labels=labels, test=rows, test_labels=labels)
