"""The groups of sides that are timed together, and their ratios."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import psycopg

from benchmarks import ours, peer, server, tables
from benchmarks.harness import Memory, Samples, Side, Spread, alternate, backend_memory
from benchmarks.tables import Table

SPLINES, LINEAR = "private_splines", "preconditioned_gd"  # which is the default there
BATCH_SIZES = (1, 50, 500)
DEFAULT_RUNS = {
    "dp_sgd": "dp_sgd_default",
    "objective_perturbation": "objective_perturbation",
    "dp_agd": "dp_agd",
}
Sides = Callable[[psycopg.Connection, Table], dict[str, Side]]
WIDE_ROWS = 50_000
WIDE_SIDES = {"ours": ours.default_run, "scikit-learn": peer.sklearn_run}
MOST_LONG = 3  # alternations of runs that take many times as long as the others

# name: (group, ours, the other side)
RATIOS = {
    **{f"epoch_b{size}_ratio": (f"epoch_b{size}", "ours", "c") for size in BATCH_SIZES},
    "prepare_ratio": ("prepare", "ours", "logged"),
    "prepare_unlogged_ratio": ("prepare", "ours", "unlogged"),
    "columns_prepare_ratio": ("prepare", "ours", "ours from the array"),
    "whole_run_ratio": ("whole_run", "ours", "c"),
    "default_ratio": ("whole_run", "ours by default", "ours"),
    "default_whole_run_ratio": ("whole_run", "ours by default", "c"),
    "numpy_ratio": ("whole_run", "ours", "numpy"),
    **{f"{ratio}_ratio": ("default_runs", algorithm, "c") for algorithm, ratio in DEFAULT_RUNS.items()},
    "splines_ratio": ("splines", SPLINES, LINEAR),
    "categorical_ratio": ("categorical", ours.CATEGORIES, ours.NUMBERS),
    "classes_scan_ratio": ("classes", "ten classes", "one class"),
    "threads_ratio": ("threads", "2 threads", "1 thread"),
}


def measure(
    connection: psycopg.Connection, table: Table, repeats: int, only: Collection[str] = ()
) -> dict[str, Samples]:
    """Time every group of sides on one table, or some of them by name."""
    peer.create_shuffled(connection, table)
    with our_registration(connection, table):
        available = GROUPS if ours.available(connection) else {name: GROUPS[name] for name in WITHOUT_OURS}
        return {name: time(connection, table, repeats) for name, time in available.items() if not only or name in only}


def epochs(connection: psycopg.Connection, table: Table, repeats: int, *, batch_size: int) -> Samples:
    """Time an epoch of each side over the same rows."""
    with our_blocks(connection, table):
        return alternate(epoch_sides(connection, table, batch_size), repeats)


def classes(connection: psycopg.Connection, table: Table, repeats: int) -> Samples:
    """Time an epoch of one model and of ten over the same rows."""
    with our_blocks(connection, table):
        return alternate(class_sides(connection, table), repeats)


def settled(
    connection: psycopg.Connection, table: Table, repeats: int, *, sides: Sides, most: int | None = None
) -> Samples:
    """Time sides that write, each after the server's own writing."""
    repeats = repeats if most is None else min(repeats, most)
    return alternate(sides(connection, table), repeats, partial(peer.settle, connection))


def splines(connection: psycopg.Connection, table: Table, repeats: int) -> Samples:
    """Time the default run, which is linear, and one of private splines, on one column for each number."""
    with ours.with_columns(connection, table) as dataset:
        sides = {name: partial(ours.run_of, connection, dataset, name) for name in (LINEAR, SPLINES)}
        return alternate(sides, min(repeats, MOST_LONG), partial(peer.settle, connection))


def threads(connection: psycopg.Connection, table: Table, repeats: int) -> Samples:
    """Time the default run with one thread and with two."""
    sides = {name: partial(ours.threaded_run, connection, table, int(name[0])) for name in ("1 thread", "2 threads")}
    return alternate(sides, repeats, partial(peer.settle, connection))


def categorical(connection: psycopg.Connection, table: Table, repeats: int) -> Samples:
    """Time the default run on 14 categorical columns of 141 coordinates, and on 14 numbers of as many rows."""
    with ours.with_categories(connection, table) as datasets:
        sides = {kind: partial(ours.run_of, connection, dataset, LINEAR) for kind, dataset in datasets.items()}
        return alternate(sides, repeats, partial(peer.settle, connection))


def prediction(connection: psycopg.Connection, table: Table, repeats: int) -> Samples:
    """Time predictions for all rows."""
    return alternate(prediction_sides(connection, table), repeats)


def our_registration(connection: psycopg.Connection, table: Table) -> AbstractContextManager[None]:
    """Return our side's preparation, where our side is timed."""
    return ours.registered(connection, table) if ours.available(connection) else nullcontext()


def our_blocks(connection: psycopg.Connection, table: Table) -> AbstractContextManager[None]:
    """Return our side's packed rows, where our side is timed; they take the memory that a request has."""
    return ours.packed(connection, table) if ours.available(connection) else nullcontext()


def epoch_sides(connection: psycopg.Connection, table: Table, batch_size: int) -> dict[str, Side]:
    """Return the times of one epoch of each side, and of the scan floor."""
    others: dict[str, Side] = {
        "scan": partial(peer.scan, connection, table),
        "c": partial(peer.epoch, connection, table, batch_size),
    }
    return with_ours(connection, others, {"ours": partial(ours.epoch, connection, table, batch_size)})


def prepare_sides(connection: psycopg.Connection, table: Table) -> dict[str, Side]:
    """Return the sides of shuffling: Bismarck's, logged as it does and unlogged; our shuffle-and-pack."""
    others: dict[str, Side] = {
        "logged": partial(peer.shuffle, connection, table, "table"),
        "unlogged": partial(peer.shuffle, connection, table, "unlogged table"),
    }
    own: dict[str, Side] = {
        "ours": partial(ours.prepare, connection, table),
        "ours from the array": partial(ours.prepare, connection, table, table.array),
    }
    return with_ours(connection, others, own)


def whole_run_sides(connection: psycopg.Connection, table: Table) -> dict[str, Side]:
    """Return the sides of a full run: preparation and ten epochs."""
    others: dict[str, Side] = {
        "c": partial(peer.whole_run, connection, table),
        "numpy": partial(peer.numpy_run, connection, table),
    }
    own: dict[str, Side] = {
        "ours": partial(ours.whole_run, connection, table, private=True),
        "ours without noise": partial(ours.whole_run, connection, table, private=False),
        "ours by default": partial(ours.default_run, connection, table),
        "privacy alone": partial(ours.private_part, connection, table),
    }
    return with_ours(connection, others, own)


def default_sides(connection: psycopg.Connection, table: Table) -> dict[str, Side]:
    """Return the default runs of algorithms that read the rows often, and C's ten epochs with its shuffle."""
    own: dict[str, Side] = {name: partial(ours.default_run, connection, table, name) for name in DEFAULT_RUNS}
    return {"c": partial(peer.whole_run, connection, table)} | own


def class_sides(connection: psycopg.Connection, table: Table) -> dict[str, Side]:
    """Return an epoch of one model, and of ten over the same rows."""
    return {
        "one class": partial(ours.epoch, connection, table, 50),
        "ten classes": partial(ours.epoch, connection, table, 50, classes=10),
    }


def growth(connection: psycopg.Connection, table: Table, repeats: int) -> Samples:
    """Time the default's whole run on a table, and on one of ten times as many rows."""
    larger = tables.repeated(connection, table, 10)
    with ours.registered(connection, table), ours.registered(connection, larger):
        sides = {each.name: partial(ours.default_run, connection, each) for each in (table, larger)}
        samples = alternate(sides, min(repeats, MOST_LONG), partial(peer.settle, connection))
    tables.drop(connection, larger)
    return samples


def wide(connection: psycopg.Connection, repeats: int, table: Table = tables.WIDE, rows: int = WIDE_ROWS) -> Samples:
    """Time the default's whole run on a table of 2,000 numbers, and scikit-learn's on rows that it pulls."""
    tables.create_arrays(connection, table.array, *tables.linear_model_rows(rows, table.features))
    with ours.registered(connection, table):
        sides = {name: partial(run, connection, table) for name, run in WIDE_SIDES.items()}
        samples = alternate(sides, min(repeats, MOST_LONG), partial(peer.settle, connection))
    tables.drop(connection, table)
    return samples


def prediction_sides(connection: psycopg.Connection, table: Table) -> dict[str, Side]:
    """Return the sides of a prediction for every row: from its array, from its columns, and the scan alone."""
    of_arrays = f"dbdp.predict({ours.trained(connection, table, table.array)}, x)"
    sides: dict[str, Side] = {
        "scan": partial(ours.prediction, connection, table.array, "x[1] > 0"),
        "from arrays": partial(ours.prediction, connection, table.array, of_arrays),
        "from arrays, as PostgreSQL plans it": partial(ours.prediction, connection, table.array, of_arrays, workers=2),
    }
    if table.raw != table.array:
        of_columns = f"dbdp.predict({ours.trained(connection, table)}, one)"
        sides["from columns"] = partial(ours.prediction, connection, f"{table.raw} as one", of_columns)
    return sides


def with_ours(connection: psycopg.Connection, others: dict[str, Side], own: dict[str, Side]) -> dict[str, Side]:
    """Return all sides, or the others alone in a database without the extension."""
    return others | own if ours.available(connection) else others


GROUPS: dict[str, Callable[[psycopg.Connection, Table, int], Samples]] = {
    **{f"epoch_b{size}": partial(epochs, batch_size=size) for size in BATCH_SIZES},
    "prepare": partial(settled, sides=prepare_sides),
    "whole_run": partial(settled, sides=whole_run_sides),
    "default_runs": partial(settled, sides=default_sides, most=MOST_LONG),
    "classes": classes,
    "prediction": prediction,
    "splines": splines,
    "threads": threads,
    "categorical": categorical,
}
ONLY_OURS = ("default_runs", "classes", "prediction", "splines", "threads", "categorical")
WITHOUT_OURS = [name for name in GROUPS if name not in ONLY_OURS]


def ratios(groups: dict[str, Samples]) -> dict[str, Spread]:
    """Return the ratio of our side to each other side, and what noise and accounting add as a share of a run.

    `noise_overhead` times those steps by themselves; the difference of two full runs measures the same
    with the noise of the machine on it.
    """
    spreads = {name: groups[group].ratio(own, other) for name, (group, own, other) in RATIOS.items() if group in groups}
    if "whole_run" in groups:
        spreads["noise_overhead"] = groups["whole_run"].ratio("privacy alone", "ours without noise")
        spreads["noise_overhead_by_difference"] = groups["whole_run"].ratio("ours", "ours without noise").less(1)
    return spreads


def peak_memory(connection: psycopg.Connection, table: Table) -> Memory:
    """Return the memory of a fresh backend that does a whole private run."""
    with our_registration(connection, table), server.connect() as fresh:
        return backend_memory(fresh, partial(ours.whole_run, fresh, table, private=True))


def first_call(repeats: int) -> Spread:
    """Return the seconds that the first call in a fresh session takes beyond the second."""
    return Spread.of([extra_of_first_call() for _ in range(repeats)])


def extra_of_first_call() -> float:
    """Return the seconds of a session's first call less those of its second."""
    with server.connect() as fresh:
        return ours.smallest_call(fresh) - ours.smallest_call(fresh)
