"""Shards: trained side by side in sessions of their own, on disjoint parts of one secret order, and nothing stays."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import exact
import numpy as np
import psycopg
import pytest
from pairs import a_third_quick, each_value_quick, others_slow
from psycopg import conninfo
from released import released

from dbdp.algorithms import Facts, Plan, Request, plan
from dbdp.algorithms.rows import Layout
from dbdp.controller import ChargedError, packed_rows
from dbdp.deployment.cluster import TIMEOUT
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.learning.rows import blocks
from dbdp.privacy.accounting.budget import CHARGE_UNITS
from dbdp.registry import datasets
from dbdp.sessions.client import ClientSession
from dbdp.sessions.inside import callers

Register = Callable[..., str]
ONE = {"i": [0, 1000]}
LONG = {"algorithm": "bolt_on", "epochs": 30_000, "batch_size": 20}
TEMPORARY = "select relname from pg_class where relpersistence = 't' and relkind = 'r' and relname like '%dbdp%'"
LEARNING = (
    "select pid from pg_stat_activity where state = 'active' and query like 'select dbdp_internal.sgd_epoch(block%'"
)
PRESENT = "select pid from pg_stat_activity where pid = any(%s)"


@pytest.fixture
def numbered(connection: psycopg.Connection, schema: str, register: Register) -> str:
    """A dataset of 1,000 rows whose one feature numbers them."""
    connection.execute("create table numbered as select i, i % 2 y from generate_series(0, 999) i")
    return register("numbered", features=ONE, intercept=False)


class Opened:
    """The workers that sessions open: their processes, who they are, and what memory they may use."""

    sql = "select pg_backend_pid() as pid, current_user as role, session_user as login, " + (
        "current_setting('dbdp.pack_memory', true) as memory"
    )

    def __init__(self) -> None:
        self.seen: list[dict[str, object]] = []

    @property
    def pids(self) -> list[object]:
        return [worker["pid"] for worker in self.seen]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Watch what workers are opened."""
    found, original = Opened(), ClientSession.workers

    @contextmanager
    def workers(self: ClientSession, count: int) -> Iterator[list[ClientSession]]:
        with original(self, count) as made:
            found.seen += [worker.query(Opened.sql)[0] for worker in made]
            yield made

    monkeypatch.setattr(ClientSession, "workers", workers)
    return found


def assert_nothing_stays(connection: psycopg.Connection, opened: Opened) -> None:
    """No table, no session of a worker, no lock, once the backends have ended."""
    deadline = time.monotonic() + TIMEOUT
    while connection.execute(PRESENT, (opened.pids,)).fetchall() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert opened.pids
    assert connection.execute(PRESENT, (opened.pids,)).fetchall() == []
    assert connection.execute(TEMPORARY).fetchall() == []
    assert connection.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)


SCALED = {"encoding": "scaled"}  # numbers from 0 to 1, of rows that keep their length


def packed(part: packed_rows.Slice) -> list[int]:
    """The numbers of the rows of a part, in its order."""
    sql = f"select block from {part.table} where block_no >= $1 and block_no < $2 order by block_no"
    found = part.session.query(sql, part.first, part.last)
    rows = np.concatenate([blocks.decode(row["block"], 1) for row in found])
    return np.rint(rows[:, 0].astype(float) * 1000 / (1 - 2**-22)).astype(int).tolist()


def spread(database: Database, name: str, sizes: tuple[int, ...]) -> list[list[int]]:
    session = ClientSession(database.connection)
    dataset = datasets.load(session, name)
    with packed_rows.packed_rows(session, dataset, Layout(1, sizes, side_by_side=True, coding=SCALED)) as made:
        made._pack({"held": False})  # as shuffle does, but for blocks that a test can read
        return [packed(part) for part in made.slices]


def exact_model(session: ClientSession, dataset: datasets.RegisteredDataset, plan: Plan) -> np.ndarray:
    with packed_rows.packed_rows(session, dataset, plan.layout) as made:
        made.shuffle()
        return plan.exact(made)


@pytest.mark.parametrize("sizes", others_slow([((334, 333, 333),), ((1, 998, 1),), ((500, 500),)], ((1, 998, 1),)))
def test_parts_are_disjoint_complete_and_of_public_sizes(database, numbered, sizes):
    parts = spread(database, numbered, sizes)
    assert tuple(map(len, parts)) == sizes
    assert sorted(number for part in parts for number in part) == list(range(1000))
    assert parts != spread(database, numbered, sizes)  # each has an order of its own
    assert [number for part in parts for number in part] != list(range(1000))


def test_each_shard_works_in_a_session_at_the_same_time(connection, database, numbered, opened, monkeypatch):
    """No epoch begins before all shards are about to begin theirs: one after another they would wait for ever."""
    together, value, at_work = threading.Barrier(3), packed_rows.Slice.value, set()

    def meeting(part: packed_rows.Slice, call: str, states: bytes) -> bytes:
        together.wait(timeout=TIMEOUT)
        at_work.add(part.session.query("select pg_backend_pid() as pid")[0]["pid"])
        return value(part, call, states)

    monkeypatch.setattr(packed_rows.Slice, "value", meeting)
    database.train(numbered, Request(epsilon=1.0, algorithm="bolt_on", shards=3, epochs=3))
    assert len(at_work) == 3
    assert at_work <= set(opened.pids)
    assert connection.info.backend_pid not in opened.pids
    assert_nothing_stays(connection, opened)


ALIKE = "create table alike as select array[0.3, -0.4, 0.5]::float8[] x, {label} y from generate_series(1, 100) i"


@pytest.mark.parametrize("when", others_slow(["once", "each_epoch"], "each_epoch"))
def test_without_noise_workers_learn_what_one_session_learns(connection, schema, register, numbered, monkeypatch, when):
    """With the same key, every row is in the same place of the same shard."""
    key = os.urandom(32)
    monkeypatch.setattr(packed_rows.secrets, "token_hex", lambda count: key.hex() if count == 32 else "shards")
    settings = {
        "epsilon": 1.0,
        "algorithm": "bolt_on",
        "shards": 3,
        "shard_averaging": when,
        "batch_size": 7,
        "epochs": 3,
    }
    session = ClientSession(connection)
    dataset = datasets.load(session, numbered)
    spread_out = exact_model(session, dataset, plan(Request(**settings), Facts(1000, 1)))
    with exact.installed(connection):
        (in_server,) = exact.exact_models(connection, numbered, [settings], [key])
        (other,) = exact.exact_models(connection, numbered, [settings], [os.urandom(32)])
    assert np.abs(spread_out - in_server).max() < 1e-12
    assert np.abs(spread_out - other).max() > 1e-9  # the order counts
    assert connection.execute(TEMPORARY).fetchall() == []


@pytest.mark.parametrize(("kind", "when"), a_third_quick(["binary", "classes"], ["once", "each_epoch"]))
def test_shards_of_records_that_are_alike_learn_alike(connection, schema, register, kind, when):
    """Equal shards of equal rows learn the same model, whose mean it is again."""
    declared = {"positive": "1"} if kind == "binary" else {"positive": None, "classes": ["1", "2"]}
    connection.execute(ALIKE.format(label=1))
    outputs, name = (1 if kind == "binary" else 2), register("alike", **declared)
    session = ClientSession(connection)
    dataset = datasets.load(session, name)
    settings = {"epsilon": 1.0, "algorithm": "bolt_on", "batch_size": 5, "epochs": 4, "regularisation": 0.001}
    sharded = plan(Request(shards=4, shard_averaging=when, **settings), Facts(100, 4, outputs))
    alone = plan(Request(**settings), Facts(25, 4, outputs))
    connection.execute("create table quarter as select * from alike limit 25")
    quarter = datasets.load(session, register("quarter", **declared))
    learned = [exact_model(session, *each) for each in ((dataset, sharded), (quarter, alone))]
    assert learned[0].shape == (outputs, 4)
    assert np.abs(learned[0] - learned[1]).max() < 1e-12
    assert np.abs(learned[0]).max() > 0.1


@pytest.mark.parametrize(("interface", "when"), each_value_quick(["client", "server"], ["once", "each_epoch"]))
def test_both_interfaces_release_models_of_shards(connection, database, numbered, spent, opened, interface, when):
    if interface == "client":
        receipt = database.train(
            numbered, Request(epsilon=1.0, algorithm="bolt_on", shards=3, shard_averaging=when, batch_size=50)
        ).receipt
        assert_nothing_stays(connection, opened)
    else:
        options = "epsilon => 1, algorithm => 'bolt_on', shards => 3, shard_averaging => %s, batch_size => 50"
        [model] = released(connection, f"dbdp.dp_logreg(%s, {options})", (numbered, when))
        receipt = model["receipt"]
        assert connection.execute(TEMPORARY).fetchall() == []
    assert (receipt["shards"], receipt["shard_averaging"]) == (3, when)
    assert receipt["updates"] == 10 * 7  # of 334 rows in mini-batches of 50
    assert spent(numbered) == (CHARGE_UNITS, 0)


def changed(connection: psycopg.Connection, statement: str) -> Callable[[str, int, int], None]:
    """A report that runs a statement when the shuffle begins."""

    def report(stage: str, done: int, _total: int) -> None:
        if (stage, done) == ("shuffle", 0):
            connection.execute(statement)

    return report


def test_after_an_error_in_a_worker_nothing_stays(connection, schema, database, numbered, spent, opened):
    report = changed(connection, f"delete from {schema}.numbered where i = 5")
    with pytest.raises(ChargedError, match="had 999 rows while it was read"):
        database.train(numbered, Request(epsilon=1.0, algorithm="bolt_on", shards=3), report)
    assert_nothing_stays(connection, opened)
    assert spent(numbered) == (CHARGE_UNITS, 0)
    connection.execute(f"insert into {schema}.numbered values (5, 1)")
    assert database.train(numbered, Request(epsilon=1.0, algorithm="bolt_on", shards=3)).receipt["shards"] == 3


@contextmanager
def until_over(server_url: str, action: Callable[[psycopg.Connection], None]) -> Iterator[None]:
    """Act from another thread and session, again and again: a cancel between two statements has no effect."""
    over = threading.Event()

    def act() -> None:
        with psycopg.connect(server_url, autocommit=True) as other:
            while not over.wait(0.01):
                action(other)

    acting = threading.Thread(target=act)
    acting.start()
    try:
        yield
    finally:
        over.set()
        acting.join()


@pytest.mark.parametrize("how", [pytest.param("pg_cancel_backend", marks=pytest.mark.slow), "pg_terminate_backend"])
def test_a_stopped_worker_stops_the_others(server_url, connection, database, numbered, spent, opened, monkeypatch, how):
    chosen: list[int] = []
    begun, value = [], packed_rows.Slice.value

    def counted(part: packed_rows.Slice, call: str, states: bytes) -> bytes:
        begun.append(part)
        return value(part, call, states)

    def stop(other: psycopg.Connection) -> None:
        results = [pid for (pid,) in other.execute(LEARNING).fetchall()]
        chosen[:] = chosen or results[:1]
        if chosen:
            other.execute(f"select {how}(%s)", chosen)

    monkeypatch.setattr(packed_rows.Slice, "value", counted)
    with until_over(server_url, stop), pytest.raises(ChargedError, match="it was cancelled, or the server was stopped"):
        database.train(numbered, Request(epsilon=1.0, shards=3, **LONG))
    assert len(begun) < 2 * LONG["epochs"]  # the two others had not made all of theirs
    assert_nothing_stays(connection, opened)
    assert spent(numbered) == (CHARGE_UNITS, 0)
    assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("shards", others_slow([1, 3], 3))
def test_a_keyboard_interrupt_stops_all_workers(server_url, connection, database, numbered, spent, opened, shards):
    pressed: list[bool] = []

    def press(other: psycopg.Connection) -> None:
        if other.execute(LEARNING).fetchall() and not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    with until_over(server_url, press), pytest.raises(KeyboardInterrupt):
        database.train(numbered, Request(epsilon=1.0, shards=shards, **LONG))
    if shards > 1:
        assert_nothing_stays(connection, opened)
    assert connection.execute(TEMPORARY).fetchall() == []
    assert spent(numbered) == (CHARGE_UNITS, 0)
    assert connection.execute(
        "select count(*) from dbdp.models_details where dataset = %s", (numbered,)
    ).fetchone() == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
def test_an_interrupt_at_any_moment_leaves_a_session_that_works(connection, database, numbered, shards):
    """Also where it comes between the last bytes of an answer and the driver's look at them.

    Where it comes within a callback of the garbage collector, Python ignores it: it is repeated, long after the first.
    """
    random = np.random.default_rng()
    for _ in range(60):
        over, seconds = threading.Event(), random.uniform(0.01, 0.6)

        def press(over: threading.Event = over, seconds: float = seconds) -> None:
            while not over.wait(seconds):
                os.kill(os.getpid(), signal.SIGINT)
                seconds = 10.0

        pressing = threading.Thread(target=press)
        with pytest.raises(KeyboardInterrupt):
            pressing.start()
            database.train(numbered, Request(epsilon=1.0, shards=shards, **LONG))
        over.set()
        pressing.join()
        assert connection.execute(TEMPORARY).fetchall() == []


@pytest.fixture
def owner(connection: psycopg.Connection, schema: str, make_role: Callable[..., str]) -> str:
    """A role that owns tables, and logs in with the password 'first'."""
    name = make_role("owner", "dbdp_data_owner")
    connection.execute(f"alter role {name} login password 'first'; grant create on schema {schema} to {name}")
    return name


OWNED = "create table owned as select i, i % 2 y from generate_series(0, 99) i"


@pytest.mark.parametrize("how", others_slow(["set role", "set session authorization"], "set role"))
def test_workers_are_who_the_session_is_and_have_its_memory(connection, schema, register, owner, opened, how):
    connection.execute(f"{how} {owner}")
    connection.execute(OWNED)
    name = register("owned", features=ONE)
    connection.execute("set dbdp.pack_memory = '7MB'")
    login = connection.execute("select session_user").fetchone()[0]
    database = connect(connection)
    database.train(name, Request(epsilon=1.0, algorithm="bolt_on", shards=2, batch_size=5))
    assert [worker["role"] for worker in opened.seen] == [owner] * len(opened.pids)
    assert {worker["login"] for worker in opened.seen} == {login}
    assert {worker["memory"] for worker in opened.seen} == {"7MB"}


def logged_in(server_url: str, owner: str, password: str) -> psycopg.Connection:
    return psycopg.connect(conninfo.make_conninfo(server_url, user=owner, password=password), autocommit=True)


@pytest.fixture
def password_counts(server_url: str, owner: str) -> None:
    """Skip where the server lets anybody in."""
    try:
        logged_in(server_url, owner, "wrong").close()
    except psycopg.OperationalError:
        return
    pytest.skip("this server asks for no password")


REFUSALS = {
    "a password that has changed": ("alter role {} password 'second'", "password authentication failed"),
    "no more connections": ("alter role {} connection limit 2", "too many connections for role"),
    "no login any more": ("alter role {} nologin", "is not permitted to log in"),
}


@pytest.mark.usefixtures("password_counts")
@pytest.mark.parametrize("why", others_slow(list(REFUSALS), "no more connections"))
def test_workers_that_cannot_connect_are_refused_before_charge(server_url, connection, schema, owner, spent, why):
    statement, message = REFUSALS[why]
    with logged_in(server_url, owner, "first") as mine:
        mine.execute(f"set search_path = {schema}")
        mine.execute(OWNED)
        database = connect(mine)
        declared = {"label": "y", "positive": "1", "features": ONE}
        database.register_dataset(f"{schema}_owned", "owned", **declared, epsilon=9, delta=0, mode="basic")
        request = Request(epsilon=1.0, algorithm="bolt_on", shards=2, batch_size=5)
        assert database.train(f"{schema}_owned", request).receipt["shards"] == 2  # the password is kept
        connection.execute(statement.format(owner))
        with pytest.raises(
            ValueError, match=f"shards = 2 needs as many further connections, and one failed.*{message}"
        ):
            database.train(f"{schema}_owned", request)
        assert mine.execute(TEMPORARY).fetchall() == []
        assert spent(f"{schema}_owned") == (CHARGE_UNITS, 0)
        alone = database.train(f"{schema}_owned", Request(epsilon=1.0, algorithm="bolt_on", batch_size=5))
        assert "shards" not in alone.receipt


def test_a_worker_that_fails_to_connect_leaves_nothing(connection, database, numbered, spent, opened, monkeypatch):
    real, left = psycopg.connect, [5]  # three that are tried before the charge, and two of three after it

    def failing(*arguments, **given):
        if not left[0]:
            raise psycopg.OperationalError('FATAL: sorry, too many clients already for "192.0.2.1"')
        left[0] -= 1
        return real(*arguments, **given)

    monkeypatch.setattr(psycopg, "connect", failing)
    with pytest.raises(ChargedError, match="not refunded: it was cancelled, or the server was stopped") as error:
        database.train(numbered, Request(epsilon=1.0, algorithm="bolt_on", shards=3))
    monkeypatch.undo()
    assert "192.0.2.1" not in str(error.value)
    assert connection.execute(TEMPORARY).fetchall() == []
    assert spent(numbered) == (CHARGE_UNITS, 0)


def test_more_shards_than_rows_are_refused(database, numbered, spent):
    with pytest.raises(ValueError, match="shards = 1001 must be a whole number between 1 and 1000: each needs a row"):
        database.train(numbered, Request(epsilon=1.0, algorithm="bolt_on", shards=1001))
    assert spent(numbered) == (0, 0)


CODE = {
    "none": "select",
    "a trigger": "create trigger tr after insert on pg_temp.own for each row "
    "execute function pg_catalog.suppress_redundant_updates_trigger()",
    "a rule": "create rule ru as on update to pg_temp.own do also select 1",
    "a default": "alter table pg_temp.own alter i set default 1",
    "a CHECK": "alter table pg_temp.own add check (i > -1)",
    "an index": "create index on pg_temp.own ((i + 1))",
    "a policy": "alter table pg_temp.own enable row level security",
    "a domain": "create domain pg_temp.d as int8; alter table pg_temp.own add j pg_temp.d",
}


@pytest.mark.parametrize("code", CODE)
def test_foreign_temporary_tables_with_code_stop_a_charge(connection, owner, code):
    """The role is that of SET ROLE; whether truncated or read, with an old snapshot."""
    connection.execute(f"set role {owner}; create temporary table own (i int8, block bytea); {CODE[code]}")
    for use in ("truncate pg_temp.own", "select from pg_temp.own"):
        with connection.transaction(force_rollback=True):
            connection.execute("set transaction isolation level repeatable read")
            connection.execute(use)
            results = {row["name"] for row in ClientSession(connection).query(callers._FOREIGN)}
        if code == "none" or use.startswith("truncate"):
            assert results == (set() if code == "none" else {"own"})
    connection.execute("reset role; drop table pg_temp.own")
