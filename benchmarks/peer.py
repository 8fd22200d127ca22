"""The other sides: training by the C aggregate, by NumPy on pulled rows, and the scan floor.

Shapes: features (n, d), labels (n,) in {-1, +1}, model (d,).
"""

import numpy as np
import psycopg
from psycopg import sql

from benchmarks import binary_copy, tables
from benchmarks.harness import timed
from benchmarks.tables import Table

EPOCHS = 10
BATCH_SIZE = 50  # of the whole runs
STEP_SIZE = 0.5
REGULARISATION = 0.001


def settle(connection: psycopg.Connection) -> None:
    """Write out what earlier timings left, so that none pays for another's checkpoint."""
    connection.execute("checkpoint")


def create_shuffled(connection: psycopg.Connection, table: Table) -> None:
    """Return the shuffled table that single epochs and the scan floor read."""
    shuffle(connection, table, "table")
    tables.vacuum(connection, table.shuffled)


def shuffle(connection: psycopg.Connection, table: Table, kind: str) -> float:
    """Return the seconds to write a `table` or an `unlogged table` in random order, as Bismarck does."""
    statement = """
        create {kind} {shuffled} as
        select x, y
        from {source}
        order by random()
    """
    query = sql.SQL(statement).format(
        kind=sql.SQL(kind),
        shuffled=sql.Identifier(table.shuffled),
        source=sql.Identifier(table.array),
    )
    tables.drop_one(connection, table.shuffled)
    return timed(lambda: connection.execute(query))


def scan(connection: psycopg.Connection, table: Table) -> float:
    """Return the seconds of the scan floor: reading one element of each row in one process."""
    statement = """
        select sum(x[1])
        from {}
    """
    query = sql.SQL(statement).format(sql.Identifier(table.shuffled))
    connection.execute("set max_parallel_workers_per_gather = 0")
    seconds = timed(lambda: connection.execute(query).fetchone())
    connection.execute("reset max_parallel_workers_per_gather")
    return seconds


def epoch(connection: psycopg.Connection, table: Table, batch_size: int) -> float:
    """Return the seconds of one epoch of the C aggregate over the shuffled table."""
    initial = [0.0] * table.features
    return timed(lambda: c_epoch(connection, table, initial, batch_size))


def c_epoch(connection: psycopg.Connection, table: Table, model: list[float], batch_size: int) -> list[float]:
    """Return the model after one epoch of the C aggregate over the shuffled table."""
    statement = """
        select bismarck.logreg_epoch(x, y, {model}::float8[], {batch_size}, {step}, {regularisation})
        from {shuffled}
    """
    query = sql.SQL(statement).format(
        model=sql.Literal(model),
        batch_size=sql.Literal(batch_size),
        step=sql.Literal(STEP_SIZE),
        regularisation=sql.Literal(REGULARISATION),
        shuffled=sql.Identifier(table.shuffled),
    )
    return connection.execute(query).fetchone()[0]


def whole_run(connection: psycopg.Connection, table: Table) -> float:
    """Return the seconds of a shuffle and ten epochs in C."""
    seconds = shuffle(connection, table, "table")
    return seconds + timed(lambda: c_epochs(connection, table))


def c_epochs(connection: psycopg.Connection, table: Table) -> list[float]:
    """Return the model after ten epochs in C, one query each."""
    model = [0.0] * table.features
    for _ in range(EPOCHS):
        model = c_epoch(connection, table, model, BATCH_SIZE)
    return model


def numpy_run(connection: psycopg.Connection, table: Table) -> float:
    """Return the seconds to pull the table into NumPy, to shuffle it, and of ten epochs there."""
    return timed(lambda: pulled_model(connection, table))


def sklearn_run(connection: psycopg.Connection, table: Table) -> float:
    """Return the seconds to pull the table, and of scikit-learn's logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return timed(lambda: LogisticRegression().fit(*binary_copy.read(connection, table.array, table.features)))


def pulled_model(connection: psycopg.Connection, table: Table) -> np.ndarray:
    """Return the model after ten epochs over pulled rows in one random order."""
    features, labels = binary_copy.read(connection, table.array, table.features)
    order = np.random.default_rng().permutation(len(labels))
    features, labels = features[order], labels[order]
    model = np.zeros(table.features)
    for _ in range(EPOCHS):
        model = numpy_epoch(features, labels, model, BATCH_SIZE)
    return model


def numpy_epoch(features: np.ndarray, labels: np.ndarray, model: np.ndarray, batch_size: int) -> np.ndarray:
    """Return the model after one epoch of plain NumPy mini-batches."""
    for start in range(0, len(labels), batch_size):
        x, y = features[start : start + batch_size], labels[start : start + batch_size]
        descent = (y / (1 + np.exp(y * (x @ model)))) @ x
        model = (1 - STEP_SIZE * REGULARISATION) * model + STEP_SIZE / batch_size * descent
    return model
