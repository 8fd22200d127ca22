"""Every charged call keeps its charge and leaves neither a model nor a table, however its transaction ends."""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from pairs import others_slow
from servers import stopping_once_charged
from short import FEW, OF_COLUMNS

from dbdp.algorithms import ALGORITHMS, PERTURBED_ONCE, Request
from dbdp.algorithms.combined.groups import GroupsRequest
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.algorithms.scores.metrics import ScoreRequest
from dbdp.controller import ChargedError, requests
from dbdp.controller.statistics import noisy_scores
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.sessions.client import ClientSession

Given = dict[str, Any]
SQL = {
    "dp_train": "dbdp.dp_train(%(name)s, 1, 0, algorithm => 'bolt_on', epochs => 1, batch_size => 20)",
    "dp_logreg": "dbdp.dp_logreg(%(name)s, 1, algorithm => 'bolt_on', epochs => 1, batch_size => 20)",
    "shards": "dbdp.dp_logreg(%(name)s, 1, algorithm => 'bolt_on', epochs => 1, batch_size => 20, shards => 3)",
    "dp_svm": "dbdp.dp_svm(%(name)s, 1, algorithm => 'bolt_on', epochs => 1, batch_size => 20)",
    "dp_linreg": "dbdp.dp_linreg(%(numbers)s, 1, 1e-6)",
    "dp_tune": """dbdp.dp_tune(%(name)s, '[{"epochs": 1}, {"epochs": 2}]', epsilon => 1, delta => 1e-6,
    algorithm => 'bolt_on')""",
    "dp_train_groups": "dbdp.dp_train_groups(%(name)s, 'k', array['0', '1'], epsilon => 1, delta => 0)",
    "network": "dbdp.dp_train(%(name)s, 1, 1e-6, network => 'mlp:2', epochs => 1, batch_size => 20)",
    "dp_score": "dbdp.dp_score(%(model)s, %(name)s, 'accuracy', 1)",
    "evaluate": "dbdp.evaluate(%(model)s, %(name)s, 1)",
    "dp_class_balance": "dbdp.dp_class_balance(%(name)s, 1)",
    "dp_bounds": "dbdp.dp_bounds(%(name)s, 'k', 1)",
    "dp_categories": "dbdp.dp_categories(%(name)s, 'k', 9, 1e-6)",
    "dp_summarize": "dbdp.dp_summarize(%(name)s, 1, 1e-6)",
    "dp_table": "dbdp.dp_table(%(name)s, '{y}', 1)",
    "dp_quantiles": "dbdp.dp_quantiles(%(numbers)s, 'y', '{.5}', 1, 1e-6)",
    "dp_describe": "dbdp.dp_describe(%(name)s, 1, 1e-6)",
}
REQUEST = Request(epsilon=1.0, delta=0.0, algorithm="bolt_on", epochs=1, batch_size=20)
TUNING = TuningRequest(
    Request(epsilon=1.0, delta=1e-6, algorithm="bolt_on", batch_size=20), ({"epochs": 1}, {"epochs": 2})
)
PYTHON: dict[str, Callable[[Database, Given], Any]] = {
    "train": lambda database, given: database.train(given["name"], REQUEST),
    "train_in_server": lambda database, given: database.train_in_server(given["name"], REQUEST),
    "train_groups": lambda database, given: database.train_groups(
        given["name"], REQUEST, group_by="k", groups=["0", "1"]
    ),
    "tune": lambda database, given: database.tune(given["name"], TUNING),
    "score": lambda database, given: database.score(given["model"], given["name"], "accuracy", epsilon=1.0),
    "confusion": lambda database, given: database.confusion(given["model"], given["name"], epsilon=1.0),
    "evaluate": lambda database, given: database.evaluate(given["model"], given["name"], epsilon=1.0),
    "bounds": lambda database, given: database.bounds(given["name"], "k", epsilon=1.0),
    "categories": lambda database, given: database.categories(given["name"], "k", epsilon=9.0, delta=1e-6),
    "class_balance": lambda database, given: database.class_balance(given["name"], epsilon=1.0),
    "summarize": lambda database, given: database.summarize(given["name"], epsilon=1.0, delta=1e-6),
    "table": lambda database, given: database.table(given["name"], ["y"], epsilon=1.0),
    "quantiles": lambda database, given: database.quantiles(given["numbers"], "y", epsilon=1.0, delta=1e-6),
    "describe": lambda database, given: database.describe(given["name"], epsilon=1.0, delta=1e-6),
}
LEFT = "select relname from pg_catalog.pg_class where relpersistence = 't' and relname like 'dbdp%'"
FREE = {  # what takes ε or a request and releases nothing
    *("register_dataset", "renew_budget", "grant_training", "guarantee", "baseline", "descent"),
    *("budget", "budget_details"),
    *("explain", "explain_in_server", "explain_tuning", "explain_groups", "explain_score"),
    *("explain_table", "explain_quantiles", "dp_explain_table", "dp_explain_quantiles"),
    *("dp_explain", "dp_explain_groups", "dp_explain_score", "dp_explain_tuning"),
}


def test_the_table_has_every_charged_function(connection):
    """A function that takes ε is in the table, or is known to be free."""
    sql = "select proname from pg_proc where pronamespace = 'dbdp'::regnamespace and 'epsilon' = any(proargnames)"
    taking = {name for (name,) in connection.execute(sql).fetchall()}
    assert taking - FREE == {re.match(r"dbdp\.(\w+)", call)[1] for call in SQL.values()}


def test_the_table_has_every_charged_method():
    methods = {
        name: inspect.signature(each).parameters for name, each in inspect.getmembers(Database, inspect.isfunction)
    }
    taking = {name for name, parameters in methods.items() if {"epsilon", "request"} & set(parameters)}
    assert {name for name in taking if not name.startswith("_")} - FREE == set(PYTHON)


@contextmanager
def rollback(connection: psycopg.Connection) -> Iterator[None]:
    """End the transaction of the block by ROLLBACK."""
    with connection.transaction(force_rollback=True):
        yield


@contextmanager
def savepoint(connection: psycopg.Connection) -> Iterator[None]:
    """Roll back to a savepoint before the block, and commit."""
    with connection.transaction(), connection.transaction(force_rollback=True):
        yield


@contextmanager
def error(connection: psycopg.Connection) -> Iterator[None]:
    """Fail after the block, in its transaction."""
    with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
        yield
        connection.execute("select 1 / 0")


ENDINGS = [rollback, savepoint, error]


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ordinary_row_is_lost_at_each_ending(connection, schema, ending):
    """The control."""
    connection.execute("create table kept (i int)")
    with ending(connection):
        connection.execute("insert into kept values (1)")
    assert connection.execute("select count(*) from kept").fetchone() == (0,)


@pytest.fixture
def given(connection: psycopg.Connection, schema: str, register: Callable[..., str]) -> Given:
    """Give datasets of classes and of numbers, of which nothing is spent, and a model of the same columns."""
    connection.execute(
        "create table t as select array[.1, .2, i / 99.0]::float8[] x, i % 2 y, i % 2 k from generate_series(1, 60) i;"
        "create table other as select * from t; create table numbers as select x, k / 2.0 y from t"
    )
    other = register("other", public_columns=["k"])
    model = connection.execute(f"select model from {SQL['dp_logreg']}", {"name": other}).fetchone()[0]
    numbers = register("numbers", positive=None, label_bounds=[0.0, 1.0])
    return {"name": register("t", public_columns=["k"]), "numbers": numbers, "model": model}


class KeepsItsCharge:
    """What holds for every charged call; a subclass gives the calls."""

    @pytest.mark.parametrize("ending", ENDINGS)
    def test_a_call_that_is_undone_keeps_its_charge(self, connection, given, spent, call, ending):
        with ending(connection):
            call(connection, given)
        assert_charged(connection, given, spent, lambda: call(connection, given))


def assert_charged(
    connection: psycopg.Connection,
    given: Given,
    spent: Callable[[str], tuple[int, int]],
    again: Callable[[], Any],
) -> None:
    """One dataset was charged, as much as the call charges undisturbed; no model and no temporary table is left."""
    names = [given["name"], given["numbers"]]
    charges = [spent(name) for name in names]
    assert sorted(charge > 0 for charge, _ in charges) == [False, True]
    models = connection.execute("select count(*) from dbdp.models_details where dataset = any(%s)", (names,))
    assert models.fetchone() == (0,)
    assert connection.execute(LEFT).fetchall() == []
    again()
    assert [spent(name) for name in names] == [(2 * charge, 2 * leak) for charge, leak in charges]


class TestFromPython(KeepsItsCharge):
    """Each method of a client."""

    @pytest.fixture(params=others_slow(list(PYTHON), "train", "tune", "confusion", "bounds", "summarize"))
    def call(self, request: pytest.FixtureRequest) -> Callable[..., Any]:
        return lambda connection, given: PYTHON[request.param](connect(connection), given)


STOPS = {
    "pg_cancel_backend": pytest.raises(psycopg.Error, match="the charge is not refunded: it was cancelled"),
    "pg_terminate_backend": pytest.raises(psycopg.OperationalError),
}


class TestFromSql(KeepsItsCharge):
    """Each function in SQL; it is also stopped after its charge, where it waits for a public time."""

    @pytest.fixture(params=others_slow(list(SQL), *list(SQL)[::2]))
    def sql(self, request: pytest.FixtureRequest) -> str:
        return f"select * from {SQL[request.param]}"

    @pytest.fixture
    def call(self, sql: str) -> Callable[..., Any]:
        return lambda connection, given: connection.execute(sql, given)

    @pytest.mark.parametrize("stop", others_slow(list(STOPS), "pg_cancel_backend"))
    def test_a_call_that_is_stopped_keeps_its_charge(self, server_url, connection, given, spent, sql, stop):
        name = given["numbers" if "numbers" in sql else "name"]
        connection.execute("select dbdp.answer_at_multiples(%s, 'a time to stop it', 3600)", (name,))
        with psycopg.connect(server_url, autocommit=True) as other:
            stopping = stopping_once_charged(server_url, other.info.backend_pid, name, stop)
            with STOPS[stop], stopping:
                other.execute(sql, given)
        connection.execute("select dbdp.answer_at_multiples(%s, 'it was stopped', null)", (name,))
        assert_charged(connection, given, spent, lambda: connection.execute(sql, given))


class Failing(ClientSession):
    """Raises an error at one statement after its charge, or where it waits for the disk."""

    def __init__(self, connection: psycopg.Connection, error: BaseException | None = None, at: int | None = None):
        super().__init__(connection)
        self.error, self.at, self.statements = error, at, -1
        self.tables: list[Any] = []

    def charge(self, *given: Any) -> Any:
        charge = super().charge(*given)
        self.statements = 0
        return charge

    def query(self, sql: str, *parameters: Any) -> Any:
        if self.statements >= 0:
            self.statements += 1
            if self.statements == self.at:
                self.tables = super().query(LEFT)
                raise self.error
        return super().query(sql, *parameters)

    def await_durable(self, charge: Any) -> None:
        if self.error and self.at is None:
            raise self.error
        super().await_durable(charge)


def training(algorithm: str) -> Callable[[ClientSession, Given], Any]:
    request = Request(1.0, 0.0 if algorithm in PERTURBED_ONCE else 1e-6, algorithm, **FEW.get(algorithm, {"epochs": 1}))
    return lambda session, given: requests.train(session, given["name"], request)


CLIENT: dict[str, Callable[[ClientSession, Given], Any]] = {
    **{algorithm: training(algorithm) for algorithm in ALGORITHMS},
    "shards": lambda session, given: requests.train(
        session, given["name"], Request(1.0, algorithm="bolt_on", epochs=1, shards=3)
    ),
    "train_groups": lambda session, given: requests.train_groups(
        session, given["name"], GroupsRequest(REQUEST, "k", ("0", "1"))
    ),
    "tune": lambda session, given: requests.tune(session, given["name"], TUNING),
    "accuracy": lambda session, given: noisy_scores.score(
        session, given["model"], given["name"], ScoreRequest("accuracy", 1.0)
    ),
    "confusion": lambda session, given: noisy_scores.score(
        session, given["model"], given["name"], ScoreRequest("confusion", 1.0)
    ),
    "class_balance": lambda session, given: noisy_scores.class_balance(session, given["name"], epsilon=1.0, delta=0.0),
}


@pytest.mark.parametrize("call", CLIENT)
def test_a_client_that_fails_keeps_its_charge(connection, given, spent, register, call):
    """At the first statement, by Ctrl-C half-way, and at the end; the ledger notes it without a row."""
    if call in OF_COLUMNS:
        connection.execute("create table columns as select x[3] as a, y from t")
        given["name"] = register("columns", features={"a": [0, 1]})
    undisturbed, name = Failing(connection), given["name"]
    CLIENT[call](undisturbed, given)
    charge, leak = spent(name)
    models = connection.execute("select count(*) from dbdp.models_details").fetchone()
    error = RuntimeError("row 4711 holds 815")
    places = ((error, 1), (KeyboardInterrupt(), undisturbed.statements // 2), (error, None))
    for times, (raised, place) in enumerate(places, 2):
        failing = Failing(connection, raised, place)
        with pytest.raises((ChargedError, KeyboardInterrupt)) as shown:
            CLIENT[call](failing, given)
        assert failing.tables or place != undisturbed.statements // 2 or call == "shards", call
        assert shown.type is KeyboardInterrupt or re.fullmatch(".*charge is not refunded[^0-9]*", str(shown.value))
        assert spent(name) == (times * charge, times * leak)
        assert connection.execute(LEFT).fetchall() == []
        assert connection.execute("select count(*) from dbdp.models_details").fetchone() == models
        noted = "select outcome, detail from dbdp.history_details where dataset = %s order by id desc limit 1"
        assert connection.execute(noted, (name,)).fetchone() == ("failed", f"{type(raised).__name__} (SQLSTATE none)")
