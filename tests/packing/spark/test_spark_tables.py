"""Tables of PostgreSQL that Spark's workers read: the order of storage, in one snapshot, and only public counts."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import sparks
from psycopg.conninfo import make_conninfo
from test_spark_rows import CANARY, KEY, SLICES, in_numpy, read, state, trained

from dbdp.algorithms import Request
from dbdp.algorithms.rows import Layout
from dbdp.controller import ChargedError
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.learning.rows.features import SCALED
from dbdp.packing.spark import packed, tables, workers
from dbdp.registry import datasets
from dbdp.sessions.client import ClientSession

ROWS = sum(SLICES)
SHARDS = Request(epsilon=1.0, delta=1e-7, algorithm="bolt_on", shards=2, epochs=2)
DECLARED: dict[str, Any] = {"label": "y", "positive": "1", "negative": "-1", "epsilon": 50.0, "delta": 1e-5}
ARRAY = {"x": {"length": sparks.LENGTH, "norm": 1.0}}
PASSWORD = "planted-password-4711"


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, list[int]]:
    random = np.random.default_rng(1)
    features = random.normal(size=(ROWS, sparks.LENGTH)) / 3
    features[17, 2] = CANARY
    return features, random.choice([-1, 1], ROWS).tolist()


@pytest.fixture
def filled(connection: psycopg.Connection, schema: str, rows: tuple[np.ndarray, list[int]]) -> str:
    """A table with the rows in their order, on many pages, and one row that was deleted."""
    connection.execute("create table rows (x float8[], y int, filler text) with (fillfactor = 10)")
    with connection.cursor().copy("copy rows from stdin") as copy:
        copy.write_row(([9.0] * sparks.LENGTH, 1, "deleted"))
        for x, y in zip(rows[0].tolist(), rows[1], strict=True):
            copy.write_row((x, y, None))
    connection.execute("delete from rows where filler is not null")
    return f"{schema}.rows"


@pytest.fixture
def dataset(database: Database, filled: str, schema: str) -> str:
    database.register_dataset(f"rows_{schema}", filled, features=ARRAY, intercept=False, **DECLARED)
    return f"rows_{schema}"


@contextmanager
def opened(spark: Any, connection: psycopg.Connection, name: str) -> Iterator[packed.SparkRows]:
    """The rows of a dataset in the order of KEY."""
    session = ClientSession(connection)
    loaded = datasets.load(session, name)
    loaded = replace(loaded, declaration=replace(loaded.declaration, encoding=SCALED))
    with (
        tables.opened_table(session, loaded) as table,
        packed.rows_on_spark(spark, loaded, table, Layout(sparks.LENGTH, SLICES)) as made,
    ):
        made._key = KEY
        yield made


@pytest.mark.parametrize("readers", [1, 3, 16])
def test_blocks_are_rows_in_key_order_for_any_readers(
    spark: Any,
    connection: psycopg.Connection,
    dataset: str,
    rows: tuple[np.ndarray, list[int]],
    readers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The blocks are the rows in the order of the key however many read."""
    monkeypatch.setattr(tables, "LEAST_SLOTS", -(-ROWS // readers))
    assert tables.readers_of(ROWS) == readers
    if readers > 1:  # one page at a time
        connection.execute("set dbdp.pack_memory = '1MB'")
    with opened(spark, connection, dataset) as made:
        assert (len(made.source.ends) > 5) == (readers > 1)
        assert np.concatenate(read(made)).tobytes() == in_numpy(*rows).tobytes()
        assert made.epoch([[state().encode()] for _ in SLICES], 3) == trained(in_numpy(*rows), 3)
    connection.execute("reset dbdp.pack_memory")


def test_all_tasks_see_the_snapshot_of_the_driver(
    spark: Any, connection: psycopg.Connection, dataset: str, rows: tuple[np.ndarray, list[int]]
) -> None:
    """All tasks see the driver's snapshot, even if others change the table."""
    with opened(spark, connection, dataset) as made:
        connection.execute("delete from rows where y = 1")
        connection.execute("update rows set x = array[0, 0, 0, 1]")
        assert np.concatenate(read(made)).tobytes() == in_numpy(*rows).tobytes()


def test_column_dataset_trains_to_postgresqls_model(
    spark: Any, database: Database, connection: psycopg.Connection, schema: str
) -> None:
    """A column dataset trains to the exact model of PostgreSQL."""
    connection.execute(
        "create table visits as select setseed(0.5) is null as never, random() * 4 - 2 as a, (random() * 9)::numeric "
        "as b, (array['x', 'y', 'ü', 'undeclared', null])[1 + (random() * 4.9)::int % 5] as c, "
        "random() < 0.4 as d, case when random() < 0.5 then 1 else -1 end as y from generate_series(1, 1500)"
    )
    features = {"a": [-1, 1], "b": [0, 9], "c": ["x", "y", "ü"], "d": [0, 1]}
    name = f"visits_{schema}"
    database.register_dataset(name, f"{schema}.visits", features=features, **DECLARED)
    exact = [each.baseline(name, SHARDS) for each in (database.on_spark(spark), database)]
    assert exact[0].errors == exact[1].errors
    assert np.allclose(exact[0].coefficients, exact[1].coefficients, rtol=1e-6)
    before = database.budget(name)["charged"]
    for request in (SHARDS, Request(epsilon=1.0, delta=1e-7)):
        assert database.on_spark(spark).train(name, request).receipt["rows"] == 1500
        assert database.budget(name)["charged"] > before
        before = database.budget(name)["charged"]


def test_table_changed_after_the_check_ends_but_charges(
    spark: Any, database: Database, connection: psycopg.Connection, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that changes after the check ends the training which stays charged."""
    from dbdp.packing.spark.engine import SparkEngine

    monkeypatch.setattr(SparkEngine, "check", lambda *_: connection.execute("delete from rows where ctid < '(2,0)'"))
    with pytest.raises(ChargedError, match=workers.INCOMPLETE):
        database.on_spark(spark).train(dataset, SHARDS)
    assert database.budget(dataset)["charged"] > 0
    assert not database.query("select id from dbdp.models where dataset = $1", dataset)


def as_capacity(database: Database, source: str, name: str) -> None:
    database.register_dataset(name, source, features=ARRAY, capacity=2000, **DECLARED)


def as_units(database: Database, source: str, name: str) -> None:
    database.register_dataset(name, source, features=ARRAY, unit="y", max_rows=10, **DECLARED | {"label": "filler"})


@pytest.mark.parametrize("register", [as_capacity, as_units])
def test_dataset_of_selected_rows_is_refused_uncharged(
    spark: Any, database: Database, filled: str, schema: str, register: Callable[..., None]
) -> None:
    """A dataset whose rows are selected is refused before the charge."""
    name = f"other_{schema}"
    register(database, filled, name)
    with pytest.raises(ValueError, match="selected while PostgreSQL reads them; train it without Spark"):
        database.on_spark(spark).train(name, SHARDS)
    assert database.budget(name)["charged"] == 0


@pytest.fixture
def reader(
    connection: psycopg.Connection, server_url: str, dataset: str, filled: str, schema: str
) -> Iterator[Database]:
    """A role that may read the table, connected with a password."""
    role = f"reader_{schema}"
    connection.execute(f"create role {role} login password '{PASSWORD}' in role dbdp_data_owner")
    connection.execute(f"grant select on {filled} to {role}")
    with connect(make_conninfo(server_url, user=role, password=PASSWORD)) as database:
        yield database
    connection.execute(f"drop owned by {role}; drop role {role}")


def test_reader_trains_and_its_password_is_in_no_log(
    spark: Any, connection: psycopg.Connection, database: Database, dataset: str, reader: Database, event_log: Path
) -> None:
    """A role that may read the table trains and its password is in no log."""
    database.grant_training(dataset, reader.connection.info.user)
    model = reader.on_spark(spark).train(dataset, SHARDS)
    assert model.receipt["rows"] == ROWS
    logged = b"".join(path.read_bytes() for path in event_log.rglob("*") if path.is_file())
    shown = (PASSWORD, repr(reader.on_spark(spark)._session.another()), str(CANARY)[:12])
    assert b"MapInArrow" in logged  # a control: plans are in the log
    assert not [text for text in shown if text.encode() in logged]
    assert PASSWORD not in shown[1]


def test_role_without_read_right_is_refused_uncharged(
    spark: Any, connection: psycopg.Connection, database: Database, dataset: str, reader: Database, filled: str
) -> None:
    """A role that may not read the table is refused and nothing is charged."""
    database.grant_training(dataset, reader.connection.info.user)
    connection.execute(f"revoke select on {filled} from {reader.connection.info.user}")
    with pytest.raises(ValueError, match="may not read"):
        reader.on_spark(spark).train(dataset, SHARDS)
    for call in ("rows_by_pages($1)", "records_on_pages($1, 0, 1)"):
        with pytest.raises(psycopg.Error, match="may not read"):
            reader.query(f"select dbdp_internal.{call}", dataset)
    assert database.budget(dataset)["charged"] == 0


def test_unreachable_postgresql_is_refused_uncharged(
    spark: Any, database: Database, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that do not reach PostgreSQL are refused before the charge."""
    elsewhere = ClientSession.another(ClientSession(database.connection))
    away = type(elsewhere)(make_conninfo(elsewhere.dsn, host="127.0.0.1", port=1), PASSWORD, elsewhere.settings)

    @contextmanager
    def in_snapshot(session: ClientSession) -> Iterator[Any]:
        yield session, tables.Access(away, "none")

    monkeypatch.setattr(tables, "in_snapshot", in_snapshot)
    with pytest.raises(ValueError, match="could not connect") as raised:
        database.on_spark(spark).train(dataset, SHARDS)
    assert PASSWORD not in str(raised.value)
    assert database.budget(dataset)["charged"] == 0


@pytest.mark.parametrize(("least", "readers"), [(10_000, 1), (100, 10), (1, 16)])
def test_as_many_workers_connect_before_as_after_charge(
    spark: Any, database: Database, dataset: str, monkeypatch: pytest.MonkeyPatch, least: int, readers: int
) -> None:
    """As many workers connect before the charge as read the table after it."""
    made, begun = type(spark).range, []

    def recorded(self: Any, *numbers: int) -> Any:
        begun.append(numbers)
        return made(self, *numbers)

    monkeypatch.setattr(tables, "LEAST_SLOTS", least)
    monkeypatch.setattr(type(spark), "range", recorded)
    database.on_spark(spark).train(dataset, SHARDS)
    assert [numbers for numbers in begun if len(numbers) > 1] == 2 * [(0, readers, 1, readers)]


def counted(event_log: Path) -> list[dict[str, int]]:
    """What Spark counted of each task in the log: rows and bytes; a result's size also has which times are not 0."""
    lines = [line for path in sorted(event_log.rglob("events_*")) for line in path.read_text().splitlines()]
    ended = [event for event in map(json.loads, lines) if event["Event"] == "SparkListenerTaskEnd"]
    ended.sort(key=lambda event: (event["Stage ID"], event["Task Info"]["Index"]))
    return [dict(_counts(event["Task Metrics"]) | _accumulated(event)) for event in ended]


def _counts(metrics: dict[str, Any], names: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            found |= _counts(value, f"{names}{name}: ")
        elif isinstance(value, int) and any(word in name for word in ("Bytes", "Records", "Spilled", "Blocks")):
            found[names + name] = value
    return found


def _accumulated(event: dict[str, Any]) -> dict[str, int]:
    listed = event["Task Info"]["Accumulables"]
    shown = [each for each in listed if any(word in each["Name"] for word in ("number of", "data", "bytes", "size"))]
    return {each["Name"]: int(each["Update"]) for each in shown if "memory" not in each["Name"]}


def differing(found: list[list[dict[str, int]]]) -> list[str]:
    """Counters of two runs that differ: numbers at all, bytes by more than random bytes do that are compressed."""
    names = [(name, task[name], other.get(name, -1)) for task, other in zip(*found, strict=True) for name in task]
    return [f"{name}: {a} {b}" for name, a, b in names if abs(a - b) > (0 if "ecords" in name else 40 + a // 100)]


def test_spark_counts_do_not_depend_on_values(
    spark: Any, connection: psycopg.Connection, database: Database, schema: str, event_log: Path
) -> None:
    """Spark's counters are the same for tables that differ in every value."""
    found = []
    for number, value in enumerate(("array[random(), random(), 0, 0]", "array[1e300, null, 'nan', 0]")):
        name, wide = f"t{number}", "null" if number else "repeat('x', 900)"  # other pages have other numbers of rows
        connection.execute(
            f"create table {name} as select {value}::float8[] as x, {number * 9 + 1} as y, {wide} as w "
            f"from generate_series(1, {ROWS})"
        )
        facts = DECLARED | {"features": ARRAY, "intercept": False}
        database.register_dataset(f"{name}_{schema}", f"{schema}.{name}", **facts)
        before = len(counted(event_log))
        with opened(spark, connection, f"{name}_{schema}") as made:
            made.epoch([[state().encode()] for _ in SLICES], 2)
            made.label_counts(1)
            made.second_moment()
        found.append(counted(event_log)[before:])
    assert len(found[0]) > 10
    assert not differing(found)
    assert differing([found[0], [{name: 2 * value for name, value in task.items()} for task in found[0]]])  # a control
