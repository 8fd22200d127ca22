"""Many sessions at once: the budget is never overspent, and nobody waits for ever."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from dbdp.algorithms import Request
from dbdp.controller import ChargedError
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.estimators.linear import LogisticRegression
from dbdp.privacy.accounting.budget import CHARGE_UNITS

TRAIN = (
    "select model from dbdp.dp_logreg(%s, epsilon => %s, delta => %s, "
    "algorithm => 'bolt_on', epochs => 1, batch_size => 20)"
)
LONG = {"algorithm": "bolt_on", "epochs": 2000, "batch_size": 20}
REGISTER = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 9, 0, mode => 'basic')"
DECLARED = json.dumps({"x": {"length": 3, "norm": 1}})


def fit(database: Database, name: str, epsilon: float, **options: int) -> None:
    arguments = {"algorithm": "bolt_on", "epochs": 1, "batch_size": 20} | options
    LogisticRegression(epsilon=epsilon, progress=False, **arguments).fit(database, name)


@pytest.mark.attack("eight-sessions")
def test_eight_sessions_at_once_never_overspend_by_a_unit(server_url, connection, table, register, spent):
    """Both interfaces; a budget of five and a bit, eight at once, each twice."""
    epsilon = 0.123456789
    name = register(table, epsilon=5 * epsilon + 1e-9, delta=0)
    together = threading.Barrier(8)

    def attempt(number: int) -> int:
        with psycopg.connect(server_url, autocommit=True) as mine:
            database, passed = connect(mine), 0
            together.wait()
            for turn in range(2):
                try:
                    if (number + turn) % 2:
                        mine.execute(TRAIN, (name, epsilon, 0.0))
                    else:
                        fit(database, name, epsilon)
                    passed += 1
                except psycopg.Error as error:
                    assert "does not cover this release" in str(error)
            return passed

    with ThreadPoolExecutor(8) as pool:
        passed = sum(pool.map(attempt, range(8)))
    assert passed == 5
    assert spent(name) == (5 * 123_456_789, 0)
    sql = "select charge from dbdp.ledger as l join dbdp.dataset as d on d.id = dataset_id where d.name = %s"
    assert connection.execute(sql, (name,)).fetchall() == [(123_456_789,)] * 5
    assert connection.execute("select count(*) from dbdp.models_details where dataset = %s", (name,)).fetchone() == (5,)


def test_a_session_that_ends_holds_no_lock(server_url, connection, table, register):
    name = register(table, epsilon=1.0, delta=0)
    with psycopg.connect(server_url) as other:
        other.execute(TRAIN, (name, 0.5, 0.0))
        with pytest.raises(psycopg.Error, match="does not cover"):
            other.execute(TRAIN, (name, 0.6, 0.0))
        other.rollback()
        held = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        assert other.execute(held).fetchone() == (0,)
        connection.execute("set statement_timeout = '120s'")
        connection.execute(TRAIN, (name, 0.5, 0.0))  # while the other session is open


WAITS = "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"


def in_thread(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def act_once_charged(
    url: str, name: str, statement: str, seconds: float = 0.2, before: Callable[[], None] = lambda: None
) -> threading.Thread:
    """Run a statement in another session, some time after the charge, and `before` just before it."""

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as other:
            number = other.execute("select max(id) from dbdp.dataset where name = %s", (name,)).fetchone()[0]
            while other.execute(f"select last_value from dbdp.charge_{number}").fetchone() == (0,):
                time.sleep(0.005)
            time.sleep(seconds)
            before()
            other.execute(statement)

    return in_thread(watch)


def test_a_drop_during_training_in_the_server_waits_for_its_end(server_url, connection, schema, table, register, spent):
    name = register(table)
    order: list[str] = []
    dropping = act_once_charged(
        server_url, name, f"drop table {schema}.t", seconds=0.05, before=lambda: order.append("drop")
    )
    connection.execute(
        "select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', epochs => 8000, batch_size => 20)", (name,)
    )
    order.append("trained")
    dropping.join()
    assert order == ["drop", "trained"]  # the drop came while it ran
    assert connection.execute(f"select to_regclass('{schema}.t')").fetchone() == (None,)
    assert spent(name) == (CHARGE_UNITS, 0)


class Hook:
    """A progress report that runs a statement in another session at one stage of a client's training."""

    def __init__(self, url: str, stage: str, statement: str) -> None:
        self._url, self._stage, self._statement = url, stage, statement

    def __call__(self, stage: str, done: int, total: int) -> None:
        if (stage, done) == (self._stage, 0 if stage == "shuffle" else 1):
            with psycopg.connect(self._url, autocommit=True) as other:
                other.execute(self._statement)


CHANGES = {
    "drop": ("drop table {}.t", "was dropped"),
    "truncate": ("truncate {}.t", "had 0 rows while it was read, dataset .* has 60: the table changed meanwhile"),
    "insert": ("insert into {0}.t select * from {0}.t", "had 120 rows while it was read"),
    "delete": ("delete from {0}.t where ctid = (select min(ctid) from {0}.t)", "had 59 rows while it was read"),
    "alter": ("alter table {}.t drop x", "column 'x' .* is now gone"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.attack("changed-table")
def test_a_table_changed_after_the_charge_stops_training(
    server_url, connection, schema, table, register, spent, change
):
    name = register(table)
    statement, message = CHANGES[change]
    hook = Hook(server_url, "shuffle", statement.format(schema))
    with pytest.raises(ChargedError, match=f"the call failed after it was charged; .*refunded: .*{message}"):
        connect(connection).train(name, Request(epsilon=1.0, algorithm="bolt_on", batch_size=20), hook)
    assert spent(name) == (CHARGE_UNITS, 0)
    left = "select count(*) from pg_class where relpersistence = 't' and relname like 'dbdp_blocks%'"
    assert connection.execute(left).fetchone() == (0,)


def test_a_table_dropped_in_a_clients_epochs_is_not_needed(server_url, connection, schema, table, register, spent):
    name = register(table)
    hook = Hook(server_url, "epoch", f"drop table {schema}.t")
    with pytest.raises(ChargedError, match="was dropped"):  # the release is stored for a table that is gone
        connect(connection).train(name, Request(epsilon=1.0, algorithm="bolt_on", batch_size=20), hook)
    assert spent(name) == (CHARGE_UNITS, 0)


@pytest.mark.parametrize("same", ["name", "table"])
@pytest.mark.attack("two-registrations")
def test_two_registrations_at_once_make_one_dataset(server_url, connection, schema, table, same):
    connection.execute("create table u as select * from t")
    first, second = ("a", f"{schema}.t"), ("a", f"{schema}.u") if same == "name" else ("b", f"{schema}.t")
    errors: list[str] = []
    with psycopg.connect(server_url) as one, psycopg.connect(server_url) as two:
        two.execute("select dbdp.check_ledger()")  # so that its interpreter is there already
        one.execute(REGISTER, (f"{schema}{first[0]}", first[1], DECLARED))

        def register_second() -> None:
            try:
                two.execute(REGISTER, (f"{schema}{second[0]}", second[1], DECLARED))
                two.commit()
            except psycopg.Error as error:
                errors.append(str(error))

        waiting = in_thread(register_second)
        while not connection.execute(WAITS, (two.info.backend_pid,)).fetchall():
            time.sleep(0.01)
        one.commit()
        waiting.join()
    assert len(errors) == 1
    assert "is registered already" in errors[0]
    assert connection.execute(
        "select count(*) from dbdp.datasets_details where source like %s", (f"{schema}.%",)
    ).fetchone() == (1,)


def test_sessions_train_on_one_dataset_side_by_side(server_url, connection, table, register):
    """The lock is held for the charge only: a transaction that stays open stops nobody."""
    name = register(table)
    with psycopg.connect(server_url) as first, psycopg.connect(server_url) as second:
        for session in (first, second, first, second):
            session.execute("set statement_timeout = '120s'")
            session.execute(TRAIN, (name, 1.0, 0.0))
    assert connection.execute("select count(*) from dbdp.models_details where dataset = %s", (name,)).fetchone() == (4,)


def test_a_broken_connection_says_that_the_charge_stands(server_url, connection, table, register, spent):
    name = register(table)
    with psycopg.connect(server_url, autocommit=True) as mine:
        stopping = act_once_charged(server_url, name, f"select pg_terminate_backend({mine.info.backend_pid})")
        with pytest.raises(
            ChargedError, match="the charge is not refunded: it was cancelled, or the server was stopped"
        ):
            fit(connect(mine), name, 1.0, **LONG)
        stopping.join()
    assert spent(name) == (CHARGE_UNITS, 0)
    left = "select count(*) from pg_class where relpersistence = 't' and relname like 'dbdp_blocks%'"
    assert connection.execute(left).fetchone() == (0,)
