"""Our side of every comparison, by the functions that a user calls.

Each timing function returns seconds, and leaves preparation and clean-up outside its clock.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import psycopg

from benchmarks import peer, tables
from benchmarks.harness import timed
from benchmarks.tables import ADULT, Table
from dbdp.algorithms import PERTURBED_ONCE, Facts, Request
from dbdp.algorithms.families.perturbed_once.shared import PerturbedOnce
from dbdp.algorithms.plan import AUTO, Released
from dbdp.controller import charging, requests, storing
from dbdp.controller.packed_rows import packed_rows
from dbdp.controller.receipts import Receipt
from dbdp.interfaces.cli.demo import adult
from dbdp.learning.losses import Logistic
from dbdp.learning.schedules import Constant
from dbdp.learning.state import State
from dbdp.packing.writers import temporary_blocks
from dbdp.registry.datasets import RegisteredDataset, load
from dbdp.registry.spending.odometers import Price
from dbdp.sessions.client import ClientSession

SHUFFLE = """select dbdp_internal.shuffle(%s, %s, '{"held": true}')"""
EPSILON, DELTA = 1.0, 1e-6
NUMBERS, CATEGORIES = "14 numbers", "14 categorical columns"


def available(connection: psycopg.Connection) -> bool:
    """Return whether the extension is in the database; without it only the other sides are timed."""
    query = """
        select exists (
            select
            from pg_extension
            where extname = 'dbdp'
        )
    """
    return connection.execute(query).fetchone()[0]


@contextmanager
def registered(connection: psycopg.Connection, table: Table) -> Iterator[None]:
    """Register the table's datasets within the block."""
    datasets = {dataset_of(table): declared(table), dataset_of(table, table.array): declared_array(table)}
    for name, declaration in datasets.items():
        register(connection, name, declaration)
    try:
        yield
    finally:
        for name in datasets:
            connection.execute("select dbdp.drop_dataset(%s)", (name,))


@contextmanager
def packed(connection: psycopg.Connection, table: Table) -> Iterator[None]:
    """Pack the raw table for `epoch` within the block, as a request does."""
    with temporary_blocks(ClientSession(connection), name_of_blocks(table)) as filled:
        connection.execute(SHUFFLE, (dataset_of(table), filled))
        yield


def dataset_of(table: Table, source: str = "") -> str:
    """Return the name that a source, by default the raw one, is registered by."""
    return f"benchmark of {source or table.raw}"


def declared(table: Table) -> dict[str, str]:
    """Return the declaration of the raw table: each number one coordinate, as the other sides have it."""
    if table.name != ADULT.name:
        return declared_array(table)
    features = {name: each if isinstance(each[0], str) else {"bounds": each} for name, each in adult.DECLARED.items()}
    return {
        "source": table.raw,
        "label": adult.LABEL,
        "positive": adult.POSITIVE,
        "negative": adult.NEGATIVE,
        "features": json.dumps(features),
    }


def declared_array(table: Table) -> dict[str, str]:
    """Return the declaration of the table with one array column."""
    features = json.dumps({"x": {"length": table.features, "norm": 1}})
    return {"source": table.array, "label": "y", "positive": "1", "negative": "-1", "features": features}


def register(
    connection: psycopg.Connection, name: str, declaration: dict[str, str], *, intercept: bool = False
) -> None:
    """Register a dataset with a budget that the runs do not exhaust."""
    statement = """
        select dbdp.register_dataset(
            %(name)s, %(source)s::regclass, label => %(label)s, positive => %(positive)s,
            negative => %(negative)s, features => %(features)s, intercept => %(intercept)s,
            epsilon => 300, delta => 1e-3, mode => 'basic')
    """
    connection.execute("select dbdp.drop_dataset(name) from dbdp.datasets where name = %s", (name,))
    connection.execute(statement, {"name": name, "intercept": intercept, **declaration})


def name_of_blocks(table: Table) -> str:
    """Return the name of the temporary table of packed blocks that `epoch` reads."""
    return f"{table.name}_blocks"


def prepare(connection: psycopg.Connection, table: Table, source: str = "") -> float:
    """Return the seconds to shuffle and pack a source, by default the raw one."""
    name = dataset_of(table, source)
    with temporary_blocks(ClientSession(connection), "bench_prepared") as prepared:
        return timed(lambda: connection.execute(SHUFFLE, (name, prepared)))


def epoch(connection: psycopg.Connection, table: Table, batch_size: int, classes: int = 1) -> float:
    """Return the seconds of one epoch over the blocks that `packed` made, of one model for each class."""
    states = [
        State.initial(
            loss=Logistic(),
            schedule=Constant(peer.STEP_SIZE),
            batch_size=batch_size,
            regularisation=peer.REGULARISATION,
            dimension=table.features,
            target=target if classes > 1 else 0,
        ).encode()
        for target in range(1, classes + 1)
    ]
    query = f"select dbdp_internal.sgd_epoch(block, %s order by block_no) from pg_temp.{name_of_blocks(table)}"
    return timed(lambda: connection.execute(query, (b"".join(states),)).fetchone())


def request() -> Request:
    """Return the request that is timed."""
    return Request(
        epsilon=EPSILON,
        delta=DELTA,
        algorithm="bolt_on",
        epochs=peer.EPOCHS,
        batch_size=peer.BATCH_SIZE,
        regularisation=peer.REGULARISATION,
    )


def whole_run(connection: psycopg.Connection, table: Table, *, private: bool) -> float:
    """Return the seconds of a request of `peer.EPOCHS` epochs, with or without accounting and noise.

    Both are driven from the client and do all else alike: the checks, the shuffle, the epochs.
    """
    session = ClientSession(connection)
    if private:
        return timed(lambda: requests.train(session, dataset_of(table), request()))
    planned = plan_of(load(session, dataset_of(table)))
    return timed(lambda: run_without_noise(session, table, planned))


def default_run(connection: psycopg.Connection, table: Table, algorithm: str = AUTO) -> float:
    """Return the seconds of a request of ε and δ alone: by the algorithm that is chosen then, or by the named one."""
    return run_of(connection, dataset_of(table), algorithm)


@contextmanager
def with_columns(connection: psycopg.Connection, table: Table) -> Iterator[str]:
    """Create and register within the block the table with one column for each number; yield the dataset's name."""
    source = tables.columns_of(connection, table)
    bounds = [-1, 1] if table.name != ADULT.name else [0, 1]
    features = {f"x{place}": {"bounds": bounds} for place in range(1, table.features + 1)}
    declaration = declared_array(table) | {"source": source, "features": json.dumps(features)}
    name = dataset_of(table, source)
    register(connection, name, declaration, intercept=True)
    try:
        yield name
    finally:
        connection.execute("select dbdp.drop_dataset(%s)", (name,))
        tables.drop_one(connection, source)


def threaded_run(connection: psycopg.Connection, table: Table, threads: int) -> float:
    """Return the seconds of the default run from the array with so many threads, if there are as many cores."""
    connection.execute("select set_config('dbdp.threads', %s, false)", (str(threads),))
    try:
        return run_of(connection, dataset_of(table, table.array), AUTO)
    finally:
        connection.execute("reset dbdp.threads")


@contextmanager
def with_categories(connection: psycopg.Connection, table: Table) -> Iterator[dict[str, str]]:
    """Create and register within the block tables of as many rows; yield the datasets by what their columns are.

    The 14 categorical columns are 7 numbers in ten bins and 7 categories of ten: 141 coordinates.
    """
    words = [f"v{digit}" for digit in range(10)]
    numbers = {f"x{place}": {"bounds": [0, 10]} for place in range(1, 15)}
    categories = {f"x{place}": {"bounds": [0, 10], "bins": 10} for place in range(1, 8)}
    categories |= {f"c{place}": words for place in range(1, 8)}
    sources = {
        NUMBERS: (tables.with_digits(connection, table, 14, 0), numbers),
        CATEGORIES: (tables.with_digits(connection, table, 7, 7), categories),
    }
    for source, features in sources.values():
        declaration = declared_array(table) | {"source": source, "features": json.dumps(features)}
        register(connection, dataset_of(table, source), declaration, intercept=True)
    try:
        yield {kind: dataset_of(table, source) for kind, (source, _) in sources.items()}
    finally:
        for source, _ in sources.values():
            connection.execute("select dbdp.drop_dataset(%s)", (dataset_of(table, source),))
            tables.drop_one(connection, source)


def run_of(connection: psycopg.Connection, dataset: str, algorithm: str) -> float:
    """Return the seconds of a request of ε and δ only for a dataset."""
    session = ClientSession(connection)
    return timed(lambda: requests.train(session, dataset, Request(EPSILON, DELTA, algorithm=algorithm)))


def training(connection: psycopg.Connection, dataset: str) -> float:
    """Return the seconds of one call of dbdp.dp_logreg with ε and δ only."""
    query = "select model from dbdp.dp_logreg(%s, epsilon => %s, delta => %s)"
    return timed(lambda: connection.execute(query, (dataset, EPSILON, DELTA)).fetchone())


def model_of(connection: psycopg.Connection, dataset: str) -> int:
    """Return the number of the newest model of a dataset."""
    return connection.execute("select max(id) from dbdp.models where dataset = %s", (dataset,)).fetchone()[0]


def trained(connection: psycopg.Connection, table: Table, source: str = "") -> int:
    """Return the number of a model of a source, by default the raw one."""
    return requests.train(ClientSession(connection), dataset_of(table, source), Request(EPSILON, DELTA)).id


def prediction(connection: psycopg.Connection, source: str, condition: str, *, workers: int = 0) -> float:
    """Return the seconds to count the rows for which a condition, such as a prediction, is true.

    It runs in one process, or with so many parallel workers at most, of which PostgreSQL's own default is 2. It is
    planned each time: a prepared statement would keep the workers that it had when it was prepared.
    """
    query = f"select count(*) from {source} where {condition}"
    connection.execute(f"set max_parallel_workers_per_gather = {workers}")
    seconds = timed(lambda: connection.execute(query, prepare=False).fetchone())
    connection.execute("reset max_parallel_workers_per_gather")
    return seconds


def run_without_noise(session: ClientSession, table: Table, planned: PerturbedOnce) -> None:
    """Run the same steps as a request without sensitivity, charge and noise; a zero model is stored."""
    dataset = load(session, dataset_of(table))
    session.check_rows(dataset)
    receipt = Receipt.of(dataset, planned.explain(), planned.guarantee)
    with packed_rows(session, dataset, planned.layout) as rows:
        rows.shuffle()
        planned.exact(rows)
    storing.store(session, dataset, planned.request, Released(np.zeros(planned.facts.shape)), receipt)


def plan_of(dataset: RegisteredDataset) -> PerturbedOnce:
    """Return the plan of the timed request."""
    timed_request = request()
    return PERTURBED_ONCE[timed_request.algorithm].plan(
        timed_request, Facts(dataset.rows, dataset.declaration.dimension)
    )


def private_part(connection: psycopg.Connection, table: Table) -> float:
    """Return the seconds of what privacy adds to a request: sensitivity, charge, durability, noise.

    The dataset is looked up in any case.
    """
    session = ClientSession(connection)
    dataset = load(session, dataset_of(table))

    def steps() -> None:
        planned = plan_of(dataset)
        price = Price.of(dataset.budget, planned.mechanism.guarantee)
        charge = charging.charge_for(session, dataset, planned.explain(), price)
        session.await_durable(charge)
        planned.mechanism.release(np.zeros(planned.facts.dimension))

    return timed(steps)


def smallest_call(connection: psycopg.Connection) -> float:
    """Return the seconds of the aggregate over one empty block, which loads all that an epoch needs."""
    state = State.initial(
        loss=Logistic(), schedule=Constant(peer.STEP_SIZE), batch_size=1, regularisation=0.0, dimension=1
    )
    query = "select dbdp_internal.sgd_epoch(''::bytea, %s)"
    return timed(lambda: connection.execute(query, (state.encode(),)).fetchone())
