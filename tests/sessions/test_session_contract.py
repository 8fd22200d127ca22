"""What every session promises the controller: one suite for the server, a client and Spark, run where each works.

An action is run with a client's session in this process, and with the server's own in a backend, as dbdp_owner, to
which its source is sent; what it returns is JSON. A third implementation is one more `Place`.
"""

import importlib.util
import inspect
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from dbdp.privacy.accounting.budget import CHARGE_UNITS
from dbdp.sessions.client import ClientSession
from dbdp.sessions.errors import is_cancel, public_failure
from dbdp.sessions.session import Session

Action = Callable[..., Any]
Register = Callable[..., str]
RUN = """
create or replace function pg_temp.run(arguments json) returns json language plpython3u
set search_path = pg_catalog, pg_temp
as $action$
import json
from typing import Any

from dbdp.interfaces.sql.boundary import session
from dbdp.sessions.session import Session

{source}
with session.as_owner():
    return json.dumps({name}(session, *json.loads(arguments)))
$action$"""


class Client:
    """Runs an action with a client's session."""

    name = "client"

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def run(self, action: Action, *arguments: Any) -> Any:
        return json.loads(json.dumps(action(ClientSession(self._connection), *arguments)))


class Server:
    """Runs an action in a backend, with the session that dbdp's functions have there."""

    name = "server"

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        connection.execute("select dbdp.about()")  # the backend knows from here on where dbdp is

    def run(self, action: Action, *arguments: Any) -> Any:
        made = RUN.format(source=inspect.getsource(action), name=action.__name__)
        self._connection.execute(made.encode())
        return self._connection.execute("select pg_temp.run(%s::json)", (json.dumps(arguments),)).fetchone()[0]


class OnSpark(Client):
    """Runs an action with the client's session of a database whose rows Spark reads."""

    def run(self, action: Action, *arguments: Any) -> Any:
        from dbdp.packing.spark.engine import SparkEngine

        engine = SparkEngine(None, ClientSession(self._connection))  # the session itself runs no job
        return json.loads(json.dumps(action(ClientSession(self._connection, engine), *arguments)))


Place = Client | Server
HAS_SPARK = importlib.util.find_spec("pyspark") is not None
NEEDS_SPARK = pytest.mark.skipif(not HAS_SPARK, reason="PySpark is not installed")


@pytest.fixture(params=[Client, Server, pytest.param(OnSpark, marks=NEEDS_SPARK)], ids=lambda each: each.__name__)
def place(request: pytest.FixtureRequest, connection: psycopg.Connection) -> Place:
    return request.param(connection)


@pytest.fixture
def name(table: str, register: Register) -> str:
    """A dataset of 60 rows, with a budget of ε = 2."""
    return register(table, epsilon=2)


def outcomes(connection: psycopg.Connection, name: str) -> list[tuple[Any, ...]]:
    sql = "select outcome, detail, models from dbdp.history_details where dataset = %s order by id"
    return connection.execute(sql, (name,)).fetchall()


def plan(epsilon: float) -> dict[str, Any]:
    event = {"event": "EpsilonDeltaDpEvent", "epsilon": epsilon, "delta": 0}
    return {"algorithm": "bolt_on", "guarantee": {"event": event, "epsilon": epsilon, "delta": 0}}


# --- statements ------------------------------------------------------------------------------------------

VALUES = {
    "bool": True,
    "int8": 2**62,
    "float8": 0.1,
    "text": "ä 'quoted' $1 %s",
    "int8[]": [1, -(2**40)],
    "float8[]": [0.1, 1e300],
    "text[]": ["a,b", '"{}'],
    "bool[]": [True, False],
}


def returned(session: Session, type_name: str, value: Any) -> Any:
    return session.query(f"select $1::pg_catalog.{type_name} as value", value)


@pytest.mark.parametrize("type_name", VALUES)
def test_a_parameter_comes_back_as_it_went(place, type_name):
    assert place.run(returned, type_name, VALUES[type_name]) == [{"value": VALUES[type_name]}]


@pytest.mark.parametrize("type_name", VALUES)
def test_a_null_comes_back_as_none(place, type_name):
    assert place.run(returned, type_name, None) == [{"value": None}]


def bytes_returned(session: Session) -> Any:
    (row,) = session.query("select $1::pg_catalog.bytea as one, $2::pg_catalog.bytea[] as many", b"\x00\xff", [b"\x00"])
    return [type(row["one"]).__name__, row["one"].hex(), [each.hex() for each in row["many"]]]


def test_bytes_come_back_as_they_went(place):
    assert place.run(bytes_returned) == ["bytes", "00ff", ["00"]]


def shapes(session: Session) -> Any:
    rows = session.query("select i as one, 'x' as two from pg_catalog.generate_series(1, 2) as i")
    none = session.query("select 1 as one where false"), session.query("set local work_mem = '5MB'")
    return [type(rows).__name__, [type(row).__name__ for row in rows], rows, *none]


def test_rows_are_dictionaries_and_no_rows_are_an_empty_list(place):
    expected = [{"one": 1, "two": "x"}, {"one": 2, "two": "x"}]
    assert place.run(shapes) == ["list", ["dict", "dict"], expected, [], []]


def query_after_a_failure(session: Session) -> Any:
    try:
        session.query("select 1 / 0")
    except Exception:
        session.recover()
    return session.query("select 2 as value")


def test_statements_run_after_a_failure_and_recovery(place, connection):
    """After a failure and recovery statements run also within a transaction."""
    connection.execute("begin")
    assert place.run(query_after_a_failure) == [{"value": 2}]
    connection.rollback()


def failure_of(session: Session, sql: str) -> Any:
    try:
        session.query(sql)
    except Exception as error:
        return session.failure(error)
    return None


FAILURES = {
    "of the server": ("select 1 / 0", ["22012", "division by zero"]),
    "of a name": ("select nothing", ["42703", 'column "nothing" does not exist']),
    "of dbdp, without its prefix": (
        "select dbdp_internal.shuffle('nowhere', 'pg_temp.packed')",
        ["DP001", "dataset 'nowhere' is not registered; see dbdp.datasets, or call dbdp.register_dataset"],
    ),
    "of none": ("select 1", None),
}


@pytest.mark.parametrize("which", FAILURES)
def test_a_failure_has_its_sqlstate_and_its_text(place, connection, which):
    connection.execute("set lc_messages = 'C'")
    sql, expected = FAILURES[which]
    assert place.run(failure_of, sql) == expected


def failure_of_python(session: Session) -> Any:
    return session.failure(ValueError("epochs = 0"))


def test_an_error_that_is_not_the_servers_has_no_sqlstate(place):
    assert place.run(failure_of_python) == ["", "epochs = 0"]


def public_failure_of(session: Session, sql: str) -> Any:
    from dbdp.sessions.errors import public_failure

    try:
        session.query(sql)
    except Exception as error:
        return public_failure(error, *session.failure(error))


def test_what_a_failure_shows_after_a_charge_quotes_no_row(place):
    sqlstate, text = place.run(public_failure_of, "select 'row 4711'::pg_catalog.int4")
    assert (sqlstate, "22P02" in text, "4711" in text) == ("22P02", True, False)
    assert public_failure(ValueError("row 4711"), "", "row 4711") == ("DP001", "ValueError (SQLSTATE none)")


def test_a_statement_that_was_cancelled_is_known_by_its_sqlstate(place, connection):
    connection.execute("set statement_timeout = '1s'")
    assert is_cancel(place.run(failure_of, "select pg_catalog.pg_sleep(600)")[0])
    assert not is_cancel(place.run(failure_of, "select 1 / 0")[0])


def cancelled(session: Session) -> Any:
    session.cancel()
    return session.query("select 1 as value")


def test_a_cancel_where_nothing_runs_stops_nothing(place):
    assert place.run(cancelled) == [{"value": 1}]


def test_a_client_cancels_what_another_thread_runs(connection):
    session, failures = ClientSession(connection), []
    thread = threading.Thread(target=lambda: failures.append(failure_of(session, "select pg_catalog.pg_sleep(600)")))
    thread.start()
    while thread.is_alive():
        session.cancel()
        time.sleep(0.05)
    assert is_cancel(failures[0][0])


def two_inserts(session: Session, table: str, second: str) -> Any:
    with session.atomic():
        for value in ("1", second):
            session.query(f"insert into {table} values ($1::pg_catalog.text::pg_catalog.int4)", value)


def test_statements_at_once_take_effect_together_or_not_at_all(place, connection, schema):
    connection.execute(f"create table {schema}.n (i int); grant insert on {schema}.n to dbdp_owner")
    with pytest.raises(psycopg.Error, match="invalid input syntax"):
        place.run(two_inserts, f"{schema}.n", "two")
    assert connection.execute(f"select i from {schema}.n").fetchall() == []
    place.run(two_inserts, f"{schema}.n", "2")
    assert connection.execute(f"select i from {schema}.n").fetchall() == [(1,), (2,)]


def table_within(session: Session, ending: str) -> Any:
    from dbdp.sessions.session import temporary_table

    present = "select pg_catalog.count(*) as n from pg_catalog.pg_class as c where c.relname = 'of_contract'"
    within = None
    try:
        with temporary_table(session, "of_contract", "block_no int8, block bytea") as table:
            session.query(f"insert into {table} values ($1, $2)", 1, b"secret")
            within = session.query(present)[0]["n"]
            if ending != "well":
                session.query(ending)
    except Exception:
        session.recover()
    return [within, session.query(present)[0]["n"]]


@pytest.mark.parametrize(
    "ending", ["well", "select 1 / 0", "select dbdp_internal.shuffle('nowhere', 'pg_temp.packed')"]
)
def test_a_temporary_table_leaves_nothing(place, ending):
    assert place.run(table_within, ending) == [1, 0]


def workers_of(session: Session, count: int) -> Any:
    sql = """
select pg_catalog.pg_backend_pid() as pid,
       current_user::pg_catalog.text as role,
       pg_catalog.current_setting('dbdp.pack_memory', true) as memory"""
    with session.workers(count) as workers:
        own = session.query(sql)[0]
        return [len(workers), workers == [session], [worker.query(sql)[0] for worker in workers], own]


def test_workers_are_many_sessions_or_the_session_itself(place, connection):
    """Workers are the requested number of sessions of the role, or only the session."""
    connection.execute("set dbdp.pack_memory = '33MB'")
    if place.name == "client":
        connection.execute("set role dbdp_analyst")
    count, is_alone, rows, own = place.run(workers_of, 3)
    assert (count, is_alone) == ((1, True) if place.name == "server" else (3, False))
    assert {(row["role"], row["memory"]) for row in rows} == {(own["role"], "33MB")}
    assert len({row["pid"] for row in rows}) == count
    assert (own["pid"] in {row["pid"] for row in rows}) == is_alone


# --- before the charge -----------------------------------------------------------------------------------


def refusal_of_rows(session: Session, name: str) -> Any:
    from dbdp.registry import datasets

    try:
        session.check_rows(datasets.load(session, name))
    except ValueError as error:
        return session.failure(error)[1]
    return None


def test_a_table_with_another_number_of_rows_is_refused(place, connection, schema, name):
    assert place.run(refusal_of_rows, name) is None
    connection.execute("delete from t where x[3] = 1 / 99.0")
    assert place.run(refusal_of_rows, name) == (
        f"{schema}.t has 59 rows, but dataset {name!r} was registered with 60; the number is part of the guarantee: "
        "let the table grow with dbdp.raise_capacity, which keeps the budget, or count again with dbdp.renew_budget"
    )
    connection.execute("select dbdp.raise_capacity(%s, 'rows come and go', 60)", (name,))
    assert place.run(refusal_of_rows, name) is None


def refusal_of_exact_results(session: Session) -> Any:
    try:
        session.check_exact_results()
    except ValueError as error:
        return str(error)
    return None


def test_results_without_noise_are_refused_in_the_server_alone(place):
    refusal = place.run(refusal_of_exact_results)
    assert (refusal is None) == (place.name == "client")
    assert refusal is None or "not private and runs in a client" in refusal


# --- the charge ------------------------------------------------------------------------------------------


def charge(session: Session, name: str, planned: dict[str, Any]) -> Any:
    from dbdp.registry import datasets

    charge = session.charge(datasets.load(session, name), planned)
    return [charge.ledger, charge.position]


def test_a_charge_is_in_the_ledger_and_on_the_odometers(place, connection, name, spent):
    number, position = place.run(charge, name, plan(0.5) | {"epochs": 3})
    sql = "select d.name, l.algorithm, l.epsilon, l.charged_by::text, l.plan ->> 'epochs', %s::pg_lsn <= "
    sql += "pg_current_wal_insert_lsn() from dbdp.ledger as l join dbdp.dataset as d on d.id = l.dataset_id "
    row = connection.execute(f"{sql} where l.id = %s", (position, number)).fetchone()
    assert row == (name, "bolt_on", 0.5, "postgres", "3", True)
    assert spent(name) == (CHARGE_UNITS // 2, 0)


def refusal_of_charge(session: Session, name: str, planned: dict[str, Any]) -> Any:
    from dbdp.registry import datasets

    dataset = datasets.load(session, name)
    try:
        session.charge(dataset, planned)
    except ValueError as error:
        return session.failure(error)[1]
    return None


REFUSALS = {
    "beyond the budget": (
        plan(2.5),
        "the budget of dataset {name!r} does not cover this release: it needs 125 %, and 100 % is left; "
        "an epsilon up to 2 fits at delta = 0, with noise at the end (dbdp.budget shows what is left)",
    ),
    "without an algorithm": (
        plan(0.5) | {"algorithm": None},
        "algorithm of the plan is None; give the algorithm's name",
    ),
    "with half a budget": (plan(1.0), None),
}


@pytest.mark.parametrize("which", REFUSALS)
def test_refused_charge_is_one_value_error_and_free(place, connection, name, spent, which):
    """A refused charge is a value error of one text and costs nothing."""
    planned, expected = REFUSALS[which]
    assert place.run(refusal_of_charge, name, planned) == (expected and expected.format(name=name))
    assert spent(name)[0] == (0 if expected else CHARGE_UNITS)
    assert len(outcomes(connection, name)) == (0 if expected else 1)


def flushed_after_waiting(session: Session, name: str, planned: dict[str, Any]) -> Any:
    from dbdp.registry import datasets

    charge = session.charge(datasets.load(session, name), planned)
    session.await_durable(charge)
    sql = "select pg_catalog.pg_current_wal_flush_lsn() operator(pg_catalog.>=) $1::pg_catalog.pg_lsn as done"
    return session.query(sql, charge.position)


def test_a_durable_charge_is_on_disk(place, connection, name):
    connection.execute("set synchronous_commit = off")
    assert place.run(flushed_after_waiting, name, plan(0.1)) == [{"done": True}]


def seconds_within(session: Session, seconds: int | None, sql: str) -> Any:
    import time

    begun = time.monotonic()
    try:
        with session.leaving_at_multiples(seconds):
            session.query(sql)
    except Exception as error:
        return [time.monotonic() - begun, session.failure(error)[0]]
    return [time.monotonic() - begun, None]


@pytest.mark.parametrize(("sql", "sqlstate"), [("select 1", None), ("select 1 / 0", "22012")])
def test_server_leaves_at_a_multiple_a_client_at_once(place, sql, sqlstate):
    """The server leaves at a multiple and a client at once and errors pass."""
    taken, failed = place.run(seconds_within, 1, sql)
    assert (taken >= 1, failed) == (place.name == "server", sqlstate)
    taken, failed = place.run(seconds_within, None, sql)
    assert (taken < 1, failed) == (True, sqlstate)


def test_a_cancel_takes_effect_without_delay(place, connection):
    connection.execute("set statement_timeout = '1s'")
    taken, failed = place.run(seconds_within, 30, "select pg_catalog.pg_sleep(600)")
    assert taken < 30
    assert is_cancel(failed)


# --- what became of the charge ---------------------------------------------------------------------------


def charge_and_note(session: Session, name: str, planned: dict[str, Any], outcome: str, detail: str | None) -> Any:
    from dbdp.registry import datasets

    session.note(session.charge(datasets.load(session, name), planned).ledger, outcome, detail)
    if outcome == "failed":
        raise RuntimeError("so the request fails")


def test_what_was_shown_is_on_record(place, connection, name):
    place.run(charge_and_note, name, plan(0.5), "shown", None)
    assert outcomes(connection, name) == [("shown", None, None)]


def test_a_failure_is_on_record_wherever_its_charge_is(place, connection, name, spent):
    with pytest.raises((psycopg.Error, RuntimeError), match="so the request fails"):
        place.run(charge_and_note, name, plan(0.5), "failed", "it broke")
    recorded = {"client": [("failed", "it broke", None)], "server": []}
    assert outcomes(connection, name) == recorded[place.name]
    assert spent(name) == (CHARGE_UNITS // 2, 0)


# --- what is stored --------------------------------------------------------------------------------------


def stored(session: Session, name: str, kind: str, planned: dict[str, Any], change: str) -> Any:
    """Store a model that fits the dataset, or one that a change spoils; return what the session does, or its refusal.

    The size of the network's parameters is its own.
    """
    from dbdp.learning.networks.architecture import network_named
    from dbdp.registry import datasets
    from dbdp.registry.results import network_models

    dataset = datasets.load(session, name)
    declaration = dataset.declaration
    network = network_named("mlp:2", declaration.dimension, declaration.outputs, declaration.intercept)
    numbers = [0.25] * (len(declaration.feature_names) if kind == "linear" else network.parameters)
    numbers = {"": numbers, "shorter": numbers[1:], "null": [None, *numbers[1:]]}[change]
    receipt = {"ledger": session.charge(dataset, planned).ledger, "algorithm": "bolt_on", "dataset": "another"}
    try:
        if kind == "linear":
            return session.store_release(dataset, numbers, [0.5], receipt)
        return session.store_network(dataset, network_models.as_data(network, None), numbers, receipt)
    except ValueError as error:
        return session.failure(error)[1]


KINDS = pytest.mark.parametrize("kind", ["linear", "network"])


@KINDS
def test_stored_model_is_the_outcome_of_its_charge(place, connection, name, kind):
    """A stored model is the outcome of its charge and its receipt names it."""
    made = place.run(stored, name, kind, plan(0.5), "")
    sql = "select coefficients, intercepts, cardinality(parameters) > 3, receipt from dbdp.model where id = %s"
    *numbers, receipt = connection.execute(sql, (made["id"],)).fetchone()
    assert numbers == ([[0.25] * 3, [0.5], None] if kind == "linear" else [None, None, True])
    assert made == {"id": made["id"], "receipt": receipt}
    named = {"model": made["id"], "dataset": name, "algorithm": "bolt_on", "released_by": "postgres"}
    assert named.items() <= receipt.items()
    assert set(receipt) == {*named, "ledger", "released_at"}
    assert outcomes(connection, name) == [("released", None, [made["id"]])]


SPOILT = {
    ("linear", "shorter"): "coefficients have the shape (2,) and intercepts (1,); the dataset needs (3,) and (1,)",
    ("linear", "null"): "a coefficient or an intercept is null or not finite; a release has numbers only",
    ("network", "shorter"): "parameters have the shape (10,); the network needs (11,)",
    ("network", "null"): "a parameter is null or not finite; a release has numbers only",
}


@pytest.mark.parametrize(("kind", "change"), SPOILT)
def test_misfit_model_is_refused_with_one_text(place, connection, name, kind, change):
    """A model that does not fit is refused with one text and not stored."""
    assert place.run(stored, name, kind, plan(0.5), change) == SPOILT[kind, change]
    sql = "select count(*) from dbdp.models_details where dataset = %s"
    assert connection.execute(sql, (name,)).fetchone() == (0,)
    assert outcomes(connection, name) == [(None, None, None)]
