"""A small table: a training of 10,000 rows in a warm session beside scikit-learn, and predictions, one and by array.

Scikit-learn has the rows pulled by binary COPY, and no privacy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg

from benchmarks import ours, peer, tables
from benchmarks.harness import Samples, Side, Spread, alternate, timed
from benchmarks.tables import Table

ROWS, WIDTH, TIMES = 10_000, 20, 100  # predictions by array are for so many times the rows
SMALL = Table(name="bench_small", raw="bench_small", array="bench_small", features=WIDTH)
CALLS = 200  # of one prediction, timed together
OTHER = "scikit-learn"

# name: the side of which it is the median
SECONDS = {
    "small_seconds": "training",
    "small_columns_seconds": "training of columns",
    "prediction_seconds": "one array, prepared",
    "plain_prediction_seconds": "one array",
    "row_prediction_seconds": "one row",
    "round_trip_seconds": "select 1",
}
PER_SECOND = {
    "predicted_arrays_per_second": "arrays, one process",
    "predicted_arrays_per_second_as_planned": "arrays, as PostgreSQL plans it",
}


def measure(connection: psycopg.Connection, repeats: int, rows: int = ROWS, times: int = TIMES) -> dict[str, Samples]:
    """Time every side of a training, and those of predictions, in one session."""
    features, labels = tables.linear_model_rows(rows, WIDTH)
    tables.create_arrays(connection, SMALL.array, features, labels)
    with ours.registered(connection, SMALL), ours.with_columns(connection, SMALL) as columns:
        trainings = alternate(training_sides(connection, columns), repeats)
        with many_rows(connection, times) as larger:
            sides = prediction_sides(connection, columns) | array_sides(connection, larger)
            predictions = alternate(sides, repeats)
    tables.drop(connection, SMALL)
    return {"small training": trainings, "prediction": predictions}


def training_sides(connection: psycopg.Connection, columns: str) -> dict[str, Side]:
    """Return the sides of a training, of one array and of a column for each number."""
    return {
        "training": partial(ours.training, connection, ours.dataset_of(SMALL)),
        "training of columns": partial(ours.training, connection, columns),
        OTHER: partial(peer.sklearn_run, connection, SMALL),
    }


def prediction_sides(connection: psycopg.Connection, columns: str) -> dict[str, Side]:
    """Return the sides of one prediction, with the round trip of its statement."""
    numbers = f"array[{', '.join(['0.1'] * WIDTH)}]::float8[]"
    of_array = f"select dbdp.predict({ours.model_of(connection, ours.dataset_of(SMALL))}, {numbers})"
    of_row = f"select dbdp.predict({ours.model_of(connection, columns)}, t) from {SMALL.array}_columns as t"
    return {
        "select 1": partial(one, connection, "select 1"),
        "one array, prepared": partial(one, connection, of_array),
        "one array": partial(one, connection, of_array, prepare=False),
        "one row": partial(one, connection, f"{of_row} where t.ctid = '(0,1)'"),
    }


def array_sides(connection: psycopg.Connection, larger: Table) -> dict[str, Side]:
    """Return the sides of a prediction for each row of a table, by its array, in one statement."""
    predicted = f"dbdp.predict({ours.model_of(connection, ours.dataset_of(SMALL))}, x)"
    side = partial(ours.prediction, connection, larger.array, predicted)
    return {"arrays, one process": side, "arrays, as PostgreSQL plans it": partial(side, workers=2)}


@contextmanager
def many_rows(connection: psycopg.Connection, times: int) -> Iterator[Table]:
    """Create within the block a table with each row so many times."""
    larger = tables.repeated(connection, SMALL, times)
    try:
        yield larger
    finally:
        tables.drop(connection, larger)


def one(connection: psycopg.Connection, query: str, *, prepare: bool = True) -> float:
    """Return the seconds of one call of a statement, the mean of `CALLS`."""

    def calls() -> None:
        for _ in range(CALLS):
            connection.execute(query, prepare=prepare).fetchone()

    return timed(calls) / CALLS


def figures(groups: dict[str, Samples], rows: int = ROWS * TIMES) -> dict[str, Spread]:
    """Return seconds, predictions per second, and the ratio of a training to scikit-learn's."""
    trainings, predictions = groups.values()
    seconds = trainings.seconds | predictions.seconds
    found = {name: Spread.of(seconds[side]) for name, side in SECONDS.items()}
    found |= {name: Spread.of([rows / each for each in seconds[side]]) for name, side in PER_SECOND.items()}
    return found | {"small_ratio": trainings.ratio("training", OTHER)}
