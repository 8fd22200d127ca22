"""`dbdp follow`: a copy of a hosted table, its changes, its refusals with their remedies, and no residue.

The hosted server is a second cluster without PL/Python and dbdp, used by a role that is no superuser.
"""

import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from commands import run_here
from hosted import ROLE, Hosted, hosted_server
from pairs import others_slow
from psycopg import conninfo
from servers import drop_datasets

from dbdp.deployment.doctor import FAULT, examine
from dbdp.deployment.following import followed_tables
from dbdp.deployment.following.followed_tables import Order
from dbdp.deployment.following.hosted_table import FollowError, hosted_table
from dbdp.deployment.following.source_checks import opened_source
from dbdp.deployment.following.subscriber_checks import (
    MARK,
    SubscriberFacts,
    opened_subscriber,
    refusals_of_subscriber,
)
from dbdp.deployment.server_account import hand_over
from dbdp.interfaces.python.client.connecting import connect

TIMEOUT = 60  # seconds for a change to arrive
COLUMNS = "age,smoker,ward,ill"
SOURCE = """
create table @ (id int primary key, name text, age int, smoker bool, ward kind, ill bool);
insert into @ select i, 'n' || i, i % 90, i % 3 = 0, (array['a', 'b'])[1 + i % 2]::kind, i % 90 > 45
from generate_series(1, 600) as i
"""
REGISTER = """
select dbdp.register_dataset('@', 'public.@', label => 'ill', positive => 'true',
features => '{"age": [0, 100], "smoker": [0, 1], "ward": ["a", "b"]}', capacity => 2000, epsilon => 4, delta => 1e-5)
"""
TRAIN = "select epsilon from dbdp.dp_logreg('@', epsilon => 1, delta => 1e-6, name => '@')"


@pytest.fixture(scope="module")
def hosted(server_url: str, server_is_here: bool) -> Iterator[Hosted]:
    """A hosted server, with a dbdp server that begins to copy without a pause."""
    if not server_is_here:
        pytest.skip("the dbdp server is on another machine, and could not connect to one here")
    with hosted_server() as made, psycopg.connect(server_url, autocommit=True) as administrator:
        made.execute("create type kind as enum ('a', 'b')")
        administrator.execute("alter system set wal_retrieve_retry_interval = '50ms'")
        administrator.execute("select pg_reload_conf()")
        yield made
        administrator.execute("alter system reset wal_retrieve_retry_interval")
        administrator.execute("select pg_reload_conf()")


@dataclass(frozen=True)
class Case:
    """A table of the hosted server, and the dbdp server that is to follow it."""

    hosted: Hosted
    target: str
    connection: psycopg.Connection  # of the dbdp server's superuser
    table: str

    @property
    def order(self) -> Order:
        return Order(self.hosted.url(), self.target, self.table, COLUMNS.split(","))

    def follow(self, *options: str, columns: str = COLUMNS) -> str:
        """Run the command; return its output, in which no password may be."""
        done = run_here("follow", self.hosted.url(), self.table, "--columns", columns, "--url", self.target, *options)
        assert self.hosted.password not in done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
        return done.stdout

    def change(self, *statements: str, provider: bool = False) -> None:
        """Run statements on the hosted server; @ is the table."""
        self.hosted.execute(*(each.replace("@", self.table) for each in statements), provider=provider)

    def change_password(self, password: str) -> None:
        with psycopg.connect(self.hosted.provider, autocommit=True) as provider:
            provider.execute(f"alter role {ROLE} password '{password}'")

    def here(self, statement: str) -> object:
        """Run a statement on the dbdp server, and return its first value."""
        cursor = self.connection.execute(statement.replace("@", self.table).encode())
        return cursor.fetchone()[0] if cursor.description else None

    def until(self, query: str, value: object) -> None:
        """Wait until the dbdp server answers a query so."""
        deadline = time.monotonic() + TIMEOUT
        while (found := self.here(query)) != value:
            assert time.monotonic() < deadline, (query, found)
            time.sleep(0.02)

    def remains(self) -> list[object]:
        """Subscriptions and tables here, slots and publications there, all of this table."""
        of_source = ("select count(*) from pg_replication_slots", "select count(*) from pg_publication")
        of_target = (
            "select count(*) from pg_subscription where subname like 'dbdp_%'",
            "select count(*) from pg_class where relname = '@' and relkind = 'r'",
        )
        return [*map(self.hosted.value, of_source), *map(self.here, of_target)]


@pytest.fixture
def case(hosted: Hosted, server_url: str, connection: psycopg.Connection) -> Iterator[Case]:
    """A table of 600 rows with a key and an enum; it and its copy go at the end."""
    made = Case(hosted, server_url, connection, f"people_{secrets.token_hex(4)}")
    made.change(*SOURCE.split(";"))
    yield made
    connection.execute("reset session authorization")
    if made.here("select count(*) from pg_subscription"):
        followed_tables.stop(made.order)
    assert made.remains()[:3] == [0, 0, 0]
    drop_datasets(connection, "name = %s", made.table)
    connection.execute(f"drop table if exists public.{made.table}")
    made.change("drop table @ cascade")


@pytest.fixture
def followed(case: Case) -> Case:
    """The same, followed."""
    case.follow()
    return case


def test_changes_arrive_and_an_analyst_trains(followed, make_role):
    """The copy has the declared columns and the key. Inserts, updates, deletes and a truncate arrive."""
    columns = "select array_agg(attname::text) from pg_attribute where attrelid = '@'::regclass and attnum > 0"
    assert followed.here(columns) == ["id", "age", "smoker", "ward", "ill"]
    assert followed.here("select string_agg(distinct ward, ',') from @") == "a,b"
    followed.here(REGISTER)
    analyst = make_role("ana", "dbdp_analyst")
    followed.here(f"select dbdp.grant_training('@', '{analyst}')")
    followed.here(f"set session authorization {analyst}")
    assert followed.here(TRAIN) == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        followed.here("select count(*) from @")
    followed.here("reset session authorization")
    followed.change("insert into @ select 1000 + i, '', 1, false, 'a', true from generate_series(1, 400) as i")
    followed.until("select count(*) from @", 1000)
    followed.change("update @ set age = 99 where id = 1", "delete from @ where id = 2")
    followed.until("select count(*) from @ where age = 99", 1)
    followed.until("select count(*) from @ where id = 2", 0)
    assert followed.here(TRAIN) == 1
    followed.change("truncate @")
    followed.until("select count(*) from @", 0)


def test_the_first_run_says_what_comes_next(case):
    """It names the columns and prints the statement that registers; once registered, it does not."""
    printed = case.follow()
    assert f"public.{case.table} (id, age, smoker, ward, ill) is followed" in printed
    assert f"select dbdp.register_dataset('{case.table}', 'public.{case.table}', label => 'COLUMN'" in printed
    assert '"age": [LOWER, UPPER], "smoker": [0, 1], "ward": ["CATEGORY", …]' in printed
    case.here(REGISTER)
    again = case.follow()
    assert "is followed, as before" in again
    assert "register_dataset" not in again
    state = json.loads(case.follow("--status", "--json"))
    assert (state["state"], state["source"], state["wal_status"]) == ("following", "reachable", "reserved")
    assert state["retained_bytes"] >= state["lag_bytes"] >= 0


def test_an_interrupted_subscription_goes_on(followed):
    name = followed.here("select subname from pg_subscription")
    followed.here(f"alter subscription {name} disable")
    followed.change("delete from @ where id <= 100")
    followed.until("select count(*) from pg_stat_subscription where pid is not null", 0)
    stopped = run_here("follow", followed.hosted.url(), followed.table, "--url", followed.target, "--status", "--json")
    assert stopped.returncode == 1
    assert json.loads(stopped.stdout)["state"] == "stopped"
    followed.follow()
    followed.until("select count(*) from @", 500)


def test_a_lost_slot_is_said_and_resynced(followed):
    """Budget, grants and dataset stay, and rows that were deleted meanwhile are gone."""
    followed.here(REGISTER)
    followed.here(TRAIN)
    spent = followed.here("select epsilon_left from dbdp.budget('@')")
    name = followed.here("select subname from pg_subscription")
    followed.here(f"alter subscription {name} disable")
    drop = (
        f"select pg_drop_replication_slot('{name}') from pg_replication_slots where slot_name = '{name}' and not active"
    )
    while followed.hosted.value("select count(*) from pg_replication_slots"):
        followed.change(drop)
    followed.change("delete from @ where id > 50")
    arguments = ("follow", followed.hosted.url(), followed.table, "--url", followed.target)
    lost = run_here(*arguments, "--status", "--json")
    assert (lost.returncode, json.loads(lost.stdout)["state"]) == (1, "lost")
    refused = run_here(*arguments)
    assert refused.returncode == 1
    assert "run it with --resync" in refused.stderr
    assert "is copied again" in followed.follow("--resync")
    assert followed.here("select count(*) from @") == 50
    assert followed.here("select epsilon_left from dbdp.budget('@')") == spent
    followed.change("insert into @ values (7777, '', 1, true, 'a', true)")
    followed.until("select count(*) from @", 51)


@pytest.mark.slow
def test_a_slot_that_exceeds_its_wal_is_lost_and_resynced(followed):
    """The control is the same subscription without a limit: the slot is extended, and nothing is lost."""
    name = followed.here("select subname from pg_subscription")
    followed.here(f"alter subscription {name} disable")
    fill = ["create table filler (a int)", "drop table filler", "select pg_switch_wal()"] * 8
    setting = "alter system {} max_slot_wal_keep_size{}; select pg_reload_conf()"
    for limit, state in (("", "stopped"), (" = '16MB'", "lost")):
        followed.change(*setting.format("set" if limit else "reset", limit).split(";"), provider=True)
        followed.change(*fill, "checkpoint", provider=True)
        with pytest.raises(FollowError, match="run it with --resync") if state == "lost" else nullcontext():
            assert followed_tables.status(followed.order).state == state
            if state == "lost":
                followed_tables.follow(followed.order, lambda *_: None)
    followed.change("delete from @ where id > 10")
    followed_tables.resync(followed.order, lambda *_: None)
    followed.change(*setting.format("reset", "").split(";"), provider=True)
    assert followed.here("select count(*) from @") == 10
    assert followed_tables.status(followed.order).state == "following"


def test_a_server_without_workers_is_told_the_setting(connection):
    """The control is the server as it is."""
    facts = SubscriberFacts.of(connection)
    assert [*refusals_of_subscriber(facts, None)] == []
    short = replace(facts, workers=1, origins=0, processes=1, copying=0)
    settings = (
        *("max_logical_replication_workers", "max_worker_processes", "max_replication_slots"),
        "max_sync_workers_per_subscription",
    )
    for found, setting in zip(refusals_of_subscriber(short, None), settings, strict=True):
        assert f"alter system set {setting} to more, and restart it" in found


def test_stop_removes_all_but_the_copy(followed):
    assert followed.remains() == [1, 1, 1, 1]
    followed.follow("--stop")
    assert followed.remains() == [0, 0, 0, 1]
    with pytest.raises(FollowError, match="add --resync to empty it"):
        followed_tables.follow(followed.order, lambda *_: None)
    followed.follow("--resync")
    assert followed.here("select count(*) from @") == 600


@pytest.mark.slow
def test_a_dropped_copy_is_stopped_or_made_again(followed):
    """The subscription of a table that was dropped would keep WAL on the hosted server."""
    followed.here("drop table @")
    followed.follow()
    assert followed.here("select count(*) from @") == 600
    followed.here("drop table @")
    assert followed.remains() == [1, 1, 1, 0]
    followed.follow("--stop")
    assert followed.remains() == [0, 0, 0, 0]


@pytest.mark.slow
def test_stop_works_without_the_source(followed):
    """It says what stays there; with the source it removes that too."""
    gone = conninfo.make_conninfo(followed.hosted.url(), port="1")
    done = run_here("follow", gone, followed.table, "--url", followed.target, "--stop")
    assert done.returncode == 0, done.stderr
    assert "if the source comes back, run this again" in done.stderr
    assert followed.remains() == [1, 1, 0, 1]
    followed.follow("--stop")
    assert followed.remains() == [0, 0, 0, 1]


@pytest.mark.parametrize("when", ["copy", "slot"])
def test_a_cancelled_copy_leaves_nothing(case, when, monkeypatch):
    """The control is the state when it is cancelled."""
    seen = []

    def cancelled(*_: object, **__: object) -> None:
        seen.append(case.remains())
        raise KeyboardInterrupt

    if when == "slot":
        monkeypatch.setattr("dbdp.deployment.following.subscription.create_copy", cancelled)
    with pytest.raises(KeyboardInterrupt):
        followed_tables.follow(case.order, cancelled)
    assert seen == [[1, 1, 1, 1] if when == "copy" else [1, 1, 0, 0]]
    assert case.remains() == [0, 0, 0, 0]


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_while_rows_are_copied(case):
    """The control is a session of the source that copies, and a table with rows here that nobody sees yet."""
    case.change("insert into @ select i, repeat('n', 99), 1, true, 'a', true from generate_series(1000, 1500000) as i")
    words = [sys.executable, "-m", "dbdp.interfaces.cli.main", "follow", case.hosted.url(), case.table]
    process = subprocess.Popen([*words, "--url", case.target], stderr=subprocess.PIPE, text=True)
    case.until("select count(*) > 0 from pg_stat_progress_copy where tuples_processed > 0", True)
    assert case.remains() == [2, 1, 1, 1]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, errors) == (130, "interrupted; nothing new is left on either server\n")
    assert case.remains() == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_run_that_was_killed_is_repeated(case, monkeypatch):
    """A publication and a slot without a subscription are made again."""
    with monkeypatch.context() as patched, pytest.raises(SystemError):
        patched.setattr("dbdp.deployment.following.subscription.Following._undone", lambda *_, **__: _NeverUndone())
        patched.setattr("dbdp.deployment.following.subscription.create_copy", _killed)
        followed_tables.follow(case.order, lambda *_: None)
    assert case.remains() == [1, 1, 0, 0]
    case.follow()
    assert case.remains() == [1, 1, 1, 1]


class _NeverUndone:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def _killed(*_: object, **__: object) -> None:
    raise SystemError


REFUSED = {  # what the provider or the customer does, options, the refusal, and its remedy
    "key": (
        "alter table @ drop constraint @_pkey",
        {},
        "or else alter table public.@ add row_id bigint",
        "alter table public.@ add row_id bigint generated always as identity primary key",
    ),
    "identity": (
        "alter table @ replica identity nothing",
        {},
        "alter table public.@ replica identity default",
        "alter table public.@ replica identity default",
    ),
    "full": (
        "alter table @ replica identity full",
        {},
        "alter table public.@ replica identity default",
        "alter table public.@ replica identity default",
    ),
    "replication": (
        f"alter role {ROLE} with noreplication",
        {},
        f"{ROLE} may not replicate: alter role {ROLE} with replication",
        f"alter role {ROLE} with replication",
    ),
    "create": (
        f"alter database app owner to postgres; revoke create on database app from {ROLE}",
        {},
        f"grant create on database app to {ROLE}",
        f"grant create on database app to {ROLE}",
    ),
    "owner": (
        f"alter table @ owner to postgres; grant select on @ to {ROLE}",
        {},
        "belongs to postgres, and only its owner may publish it: connect as that role",
        f"alter table @ owner to {ROLE}",
    ),
    "read": (
        f"revoke select on @ from {ROLE}",
        {},
        r"may not read id, age, smoker, ward, ill: grant select \(id, age, smoker, ward, ill\) on public.@ to",
        f"grant select (id, age, smoker, ward, ill) on public.@ to {ROLE}",
    ),
    "type": (
        "create type pair as (a int, b int); alter table @ add c pair",
        {"columns": None},
        "column c is public.pair, which does not arrive as it is: leave it out",
        "alter table @ drop column c; drop type pair",
    ),
    "generated": (
        "alter table @ add c int generated always as (age + 1) stored",
        {"columns": None},
        "column c is generated, .* or make it an ordinary column",
        "alter table @ alter c drop expression",
    ),
    "rls": (
        "alter table @ enable row level security; alter table @ force row level security",
        {},
        f"row-level security hides rows of public.@ from {ROLE}, .* alter role {ROLE} with bypassrls",
        f"alter role {ROLE} with bypassrls",
    ),
    "dataset": (
        "create role dbdp_owner; grant select on @ to dbdp_owner",
        {},
        "is read by dbdp on the source already",
        "drop owned by dbdp_owner; drop role dbdp_owner",
    ),
}


@pytest.mark.parametrize("cause", others_slow(REFUSED, "key", "replication", "type"))
def test_a_refusal_names_a_remedy_that_works(case, cause):
    """Nothing is changed by a refusal, and after the remedy there is none."""
    before, options, message, remedy = (
        each.replace("@", case.table) if isinstance(each, str) else each for each in REFUSED[cause]
    )
    try:
        case.change(*before.split(";"), provider=True)
        with pytest.raises(FollowError, match=message):
            followed_tables.follow(replace(case.order, **options), lambda *_: None)
        assert case.remains() == [0, 0, 0, 0]
    finally:
        case.change(*remedy.split(";"), provider=True)
    check(replace(case.order, **options))
    case.change("alter database app owner to hosted_admin", provider=True)


def check(order: Order) -> None:
    """Raise as `follow` does before it changes anything."""
    with opened_source(order.source_url) as source, opened_subscriber(order.target_url) as target:
        followed_tables.check(source, target, hosted_table(source, order.table, order.columns), order)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["agee"]}, r"has no column 'agee'; its columns are .*; did you mean 'age'"),
        ({"table": "no.such"}, "the source has no table no.such"),
        ({"table": "a.b.c"}, "'a.b.c' is not the name of a table"),
        ({"owner": "nobody_here"}, "--owner nobody_here is not safe on PostgreSQL 15"),
        ({"source_url": "postgresql://a:b@c@d/e"}, "source: the target is not a libpq URL"),
    ],
)
def test_a_wrong_argument_is_named(case, options, message):
    if "owner" in options and case.connection.info.server_version >= 160000:
        pytest.skip("an owner is safe there")
    with pytest.raises(FollowError, match=message):
        followed_tables.follow(replace(case.order, **options), lambda *_: None)


@pytest.mark.slow
def test_a_source_that_would_wait_for_its_follower_is_refused(case):
    """The control is the server as it is: a follower counts as a synchronous standby if any does."""
    check(case.order)
    setting = "alter system {}; select pg_reload_conf()"
    try:
        case.change(*setting.format("set synchronous_standby_names = 'ANY 1 (*)'").split(";"), provider=True)
        while case.hosted.value("show synchronous_standby_names") == "":
            time.sleep(0.02)
        with pytest.raises(FollowError, match="name the standbys there instead of"):
            check(case.order)
    finally:
        case.change(*setting.format("reset synchronous_standby_names").split(";"), provider=True)
        while case.hosted.value("show synchronous_standby_names"):
            time.sleep(0.02)
    check(case.order)


@pytest.mark.slow
def test_odd_names_are_quoted_also_in_the_next_statement(case):
    """A quote in a name of the hosted server ends no literal of the statement that people run."""
    odd = """'"It's {odd}"'"""[1:-1]
    case.change(f"""create table {odd} (id int primary key, "a'b" int, "c\"\"d" bool)""")
    case.change(f"insert into {odd} select i, i % 90, i % 2 = 0 from generate_series(1, 300) as i")
    order = replace(case.order, table=odd, columns=None)
    try:
        done = followed_tables.follow(order, lambda *_: None)
        filled = done.next.replace(', "c\\"d": [0, 1]', "").replace("[LOWER, UPPER]", "[0, 90]")
        for blank, fact in {"COLUMN": 'c"d', "VALUE": "true", "ROWS": "1000"}.items():
            filled = filled.replace(blank, fact)
        case.connection.execute(filled.encode())
        assert case.here("select count(*) from dbdp.datasets where name = 'It''s {odd}'") == 1
        assert followed_tables.follow(order, lambda *_: None).next is None
    finally:
        followed_tables.stop(order)
        drop_datasets(case.connection, "name = %s", "It's {odd}")
        case.here(f"drop table public.{odd}")
        case.change(f"drop table {odd}")


def test_several_reasons_are_listed_one_by_one(case):
    case.change("alter table @ drop constraint @_pkey", "alter table @ add c int generated always as (age) stored")
    done = run_here("follow", case.hosted.url(), case.table, "--url", case.target)
    first, second, last = done.stderr.splitlines()
    assert first.startswith("- column c is generated")
    assert second.startswith(f"- public.{case.table} needs replica identity default and a primary key")
    assert last == "error: 2 things are missing, and nothing was changed; run it again after that"


def test_the_same_server_is_refused_as_a_source(case):
    with pytest.raises(FollowError, match="the same server: register the table there"):
        followed_tables.follow(replace(case.order, source_url=case.target), lambda *_: None)


def test_a_server_without_dbdp_does_not_follow(case, make_database):
    with pytest.raises(FollowError, match="has no dbdp in this database"):
        followed_tables.follow(replace(case.order, target_url=make_database()), lambda *_: None)


def test_another_table_is_not_overwritten(case):
    case.here("create table @ (id int); insert into @ values (7)")
    for action in (followed_tables.follow, followed_tables.snapshot, followed_tables.resync):
        with pytest.raises(FollowError, match=r"another table|no copy of yours"):
            action(case.order, lambda *_: None)
    assert case.here("select id from @") == 7


def test_a_missing_schema_is_named_with_its_statements(case):
    case.change("create schema clinic", "alter table @ set schema clinic")
    order = replace(case.order, table=f"clinic.{case.table}")
    with pytest.raises(FollowError, match="create schema clinic; grant usage on schema clinic to dbdp_owner"):
        followed_tables.follow(order, lambda *_: None)
    case.here("create schema clinic; grant usage on schema clinic to dbdp_owner")
    try:
        check(order)
    finally:
        case.here("drop schema clinic")
        case.change("alter table clinic.@ set schema public", "drop schema clinic")


def test_default_privileges_let_nobody_read_a_copy(case, make_role):
    """The control is a table that is created in the ordinary way."""
    role = make_role("ana", "dbdp_analyst")
    default = "alter default privileges in schema public {} select on tables {} public, {}"
    case.here(default.format("grant", "to", role))
    try:
        case.here("create table public.ordinary_@ (id int)")
        followed_tables.snapshot(case.order, lambda *_: None)
    finally:
        case.here(default.format("revoke", "from", role))
    may = "select has_table_privilege('{}', '{}', 'select')"
    assert case.here(may.format(role, "public.ordinary_@")) is True
    assert case.here(may.format(role, "public.@")) is False
    case.here("drop table public.ordinary_@")


@pytest.mark.slow
def test_a_partitioned_table_is_followed(case):
    """Its copy is one ordinary table, which rows of every partition reach."""
    case.change(
        "create table @_parts (id int primary key, age int) partition by range (id)",
        "create table @_one partition of @_parts for values from (0) to (100)",
        "create table @_two partition of @_parts for values from (100) to (200)",
        "insert into @_parts select i, i from generate_series(1, 150) as i",
    )
    order = replace(case.order, table=f"{case.table}_parts", columns=None)
    try:
        followed_tables.follow(order, lambda *_: None)
        case.change("update @_parts set age = -1 where id > 99", "insert into @_parts values (160, -1)")
        case.until("select count(*) from @_parts where age = -1", 52)
        assert case.here("select count(*) from @_parts") == 151
    finally:
        followed_tables.stop(order)
        case.here("drop table if exists @_parts")
        case.change("drop table @_parts")


@pytest.mark.slow
def test_inserts_only_copies_a_table_without_a_key(case):
    """Updates of the hosted table do not fail, as they would if they were published."""
    case.change("alter table @ drop constraint @_pkey")
    case.follow("--inserts-only")
    case.change("update @ set age = 1", "insert into @ values (8888, '', 1, true, 'a', true)")
    case.until("select count(*) from @", 601)


def test_a_role_without_superuser_may_not_subscribe(case, make_role):
    role = make_role("olga", "dbdp_data_owner")
    case.here(f"alter role {role} login password 'of-olga'")
    target = conninfo.make_conninfo(case.target, user=role, password="of-olga")
    with pytest.raises(FollowError, match=f"{role} may not subscribe on the dbdp server: .*connect as a superuser"):
        followed_tables.follow(replace(case.order, target_url=target), lambda *_: None)


TRIGGER = """
create function public.attack_@() returns trigger language plpgsql as $$
begin
  insert into public.seen_@ select current_user, rolsuper from pg_roles where rolname = current_user;
  return new;
end $$;
create trigger attack before insert on public.@ for each row execute function public.attack_@();
alter table public.@ enable always trigger attack
"""


@pytest.fixture
def olga(case: Case, make_role: Callable[..., str]) -> Iterator[str]:
    """A data owner with a function to run in others' sessions."""
    role = make_role("olga", "dbdp_data_owner")
    case.here(f"grant usage, create on schema public to {role}")
    case.here(f"create table public.seen_@ (role name, is_superuser bool); grant all on seen_@ to {role}")
    yield role
    case.connection.execute("reset session authorization")
    case.here(
        "drop table if exists public.@ cascade; drop table public.seen_@; drop function if exists public.attack_@"
    )
    case.here(f"revoke all on schema public from {role}")


@pytest.mark.security
@pytest.mark.attack("trigger-on-copy")
def test_a_data_owner_puts_no_code_on_a_copy(followed, olga):
    """The control gives the copy to the owner: then the trigger runs as a superuser on PostgreSQL 15."""
    function, trigger, always = TRIGGER.strip().split(";\ncreate trigger")[0], *TRIGGER.strip().rsplit(";\n", 2)[1:]
    followed.here(f"set session authorization {olga}")
    followed.here(function)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        followed.here(trigger)
    followed.here("reset session authorization")
    followed.here(f"alter table @ owner to {olga}; set session authorization {olga}")
    followed.here(trigger)
    followed.here(always)
    followed.here("reset session authorization")
    followed.change("insert into @ values (9999, '', 1, true, 'a', true)")
    followed.until("select count(*) from @", 601)
    is_lent = followed.connection.info.server_version < 160000
    assert followed.here("select is_superuser from seen_@") is is_lent
    if is_lent:
        remedy = f"alter table public.{followed.table} owner to postgres"
        for action in (followed_tables.follow, followed_tables.resync):
            with pytest.raises(FollowError, match=remedy):
                action(followed.order, lambda *_: None)
        faults = [each for each in examine(followed.target) if each.check == "subscriptions"]
        assert [(each.state, each.remedy) for each in faults] == [(FAULT, f"{remedy};")]
        followed.here(remedy)
        assert not [each for each in examine(followed.target) if each.check == "subscriptions"]
    with pytest.raises(FollowError, match=r"has code that would run as you \(trigger attack\)"):
        followed_tables.resync(followed.order, lambda *_: None)


def test_a_forged_mark_of_a_copy_gets_no_rows(case, olga):
    """Any owner can write a copy's comment; the control is that the mark makes a copy of the role's own table."""
    order = replace(case.order, columns=None)
    case.here(f"create table public.@ (id int primary key, age int check (age > 0)); comment on table @ is '{MARK}'")
    case.here(f"alter table @ owner to {olga}")
    for action in (followed_tables.follow, followed_tables.resync, followed_tables.snapshot):
        with pytest.raises(FollowError, match=rf"belongs to {olga}"):
            action(order, lambda *_: None)
    assert case.here("select count(*) from @") == 0
    case.here("alter table @ owner to current_user")
    with pytest.raises(FollowError, match="add --resync to empty it"):
        followed_tables.follow(order, lambda *_: None)
    if case.connection.info.server_version < 160000:  # where the former owner's code would run as a superuser
        with pytest.raises(FollowError, match=r"has code that would run as you \(constraint \w+\)"):
            followed_tables.resync(order, lambda *_: None)
    assert case.here("select count(*) from @") == 0


def test_snapshots_never_show_an_empty_copy(case):
    """Readers see the rows of one snapshot, and the registration and its budget stay."""
    printed = case.follow("--snapshot")
    assert "is copied, 600 rows" in printed
    case.here(REGISTER)
    case.here(TRAIN)
    spent = case.here("select epsilon_left from dbdp.budget('@')")
    case.change("delete from @ where id > 400", "update @ set age = 3")
    seen, over = set(), threading.Event()

    def read() -> None:
        with psycopg.connect(case.target, autocommit=True) as reader:
            while not over.is_set():
                seen.add(reader.execute(f"select count(*), count(distinct age) from {case.table}").fetchone())

    readers = [threading.Thread(target=read) for _ in range(2)]
    for each in readers:
        each.start()
    for columns in (COLUMNS, None, None):  # by default those of the copy
        followed_tables.snapshot(replace(case.order, columns=columns and columns.split(",")), lambda *_: None)
    over.set()
    for each in readers:
        each.join()
    assert seen == {(600, 90), (400, 1)}
    assert case.here("select epsilon_left from dbdp.budget('@')") == spent
    assert case.here(TRAIN) == 1


@pytest.mark.slow
def test_a_snapshot_that_fails_changes_nothing(case):
    """A trigger of the test stands for a failure in the middle."""
    case.follow("--snapshot")
    case.change("update @ set age = 1000000")
    case.here("alter table @ add check (age < 1000)")
    with pytest.raises(psycopg.errors.CheckViolation):
        followed_tables.snapshot(case.order, lambda *_: None)
    assert case.here("select max(age) from @") == 89


@pytest.mark.security
@pytest.mark.attack("trigger-on-snapshot")
def test_a_snapshot_belongs_to_the_role_that_takes_it(case, olga):
    """A superuser does not write a table of another role: its triggers would run as the superuser."""
    case.here(f"alter role {olga} login password 'of-olga'")
    order = replace(case.order, target_url=conninfo.make_conninfo(case.target, user=olga, password="of-olga"))
    assert followed_tables.snapshot(order, lambda *_: None).rows == 600
    with pytest.raises(FollowError, match=f"belongs to {olga}, and its triggers would run as you: connect as {olga}"):
        followed_tables.snapshot(case.order, lambda *_: None)
    case.here(f"set session authorization {olga}")
    case.here(REGISTER)
    assert case.here(TRAIN) == 1


@pytest.mark.slow
def test_a_snapshot_needs_no_replication(case):
    """A view without a key, of a role that may only read, is copied."""
    case.change("create view @_view as select age, ill from @", "create role reader_@ login password 'of-reader'")
    case.change("grant select on @_view to reader_@")
    source = conninfo.make_conninfo(case.hosted.url(), user=f"reader_{case.table}", password="of-reader")
    order = replace(case.order, source_url=source, table=f"{case.table}_view", columns=None)
    try:
        with pytest.raises(FollowError, match=r"may not replicate[\s\S]*is no table[\s\S]*use --snapshot"):
            followed_tables.follow(order, lambda *_: None)
        assert followed_tables.snapshot(order, lambda *_: None).rows == 600
    finally:
        case.here("drop table if exists @_view")
        case.change("drop view @_view", "drop role reader_@")


@pytest.mark.security
@pytest.mark.attack("password-of-source")
def test_no_password_is_shown(case):
    """Neither by an error, nor to other roles, nor in the log or the statements of dbdp's server."""
    wrong = conninfo.make_conninfo(case.hosted.url(), password="very-wrong-secret")
    done = run_here("follow", wrong, case.table, "--url", case.target)
    assert done.returncode == 1
    assert "source: " in done.stderr
    assert "very-wrong-secret" not in done.stdout + done.stderr
    broken = run_here("follow", case.hosted.url(), case.table, "--url", case.target, "--passfile", "/no/such/file")
    assert broken.returncode == 1
    assert "dbdp's server cannot subscribe to the source" in broken.stderr
    assert case.remains() == [0, 0, 0, 0]
    case.here("alter system set log_statement = 'all'; ")
    case.here("select pg_reload_conf()")
    try:
        case.follow()
        case.follow()
    finally:
        case.here("alter system reset log_statement")
        case.here("select pg_reload_conf()")
    password = case.hosted.password
    assert case.here(f"select count(*) from pg_subscription where position('{password}' in subconninfo) > 0") == 1
    shown = case.here("select string_agg(query, ' ') from pg_stat_activity where pid <> pg_backend_pid()")
    assert password not in shown
    log = Path(case.here("select current_setting('data_directory')")).parent / "server.log"
    logged = [line for line in log.read_text().splitlines() if password in line]
    assert all("position('" in line for line in logged)  # only the query of this test


@pytest.mark.slow
def test_a_password_file_keeps_the_password_out_of_the_database(case):
    """The file is the server account's, on the dbdp server's machine."""
    folder = Path(case.here("select current_setting('data_directory')")).parent
    file = folder / f"passwords-{case.table}"
    file.touch(mode=0o600)
    file.write_text(f"*:*:*:{ROLE}:{case.hosted.password}\n")
    hand_over(file)
    try:
        case.follow("--passfile", str(file))
        assert case.here("select count(*) from @") == 600
        assert case.here("select subconninfo ~ 'passfile=' and subconninfo !~ 'password=' from pg_subscription")
        case.follow("--stop")
    finally:
        file.unlink()


@pytest.mark.slow
def test_a_column_that_is_added_later_does_not_stop_changes(case):
    """All columns are listed in the publication, also if none is named."""
    followed_tables.follow(replace(case.order, columns=None), lambda *_: None)
    case.change("alter table @ add later int", "insert into @ values (5555, '', 1, true, 'a', true, 1)")
    case.until("select count(*) from @", 601)


@pytest.mark.slow
def test_a_new_password_is_given_by_running_it_again(followed):
    """With the former one, changes stop once the connection breaks."""
    later = f"later-{secrets.token_hex(8)}"
    followed.change_password(later)
    try:
        name = followed.here("select subname from pg_subscription")
        followed.here(f"alter subscription {name} disable")
        followed.until("select count(*) from pg_stat_subscription where pid is not null", 0)
        followed.here(f"alter subscription {name} enable")
        with pytest.raises(psycopg.OperationalError):
            followed.hosted.value("select 1")
        source = conninfo.make_conninfo(followed.hosted.url(), password=later)
        done = run_here("follow", source, followed.table, "--url", followed.target)
        assert done.returncode == 0, done.stderr
        assert later not in done.stdout + done.stderr
    finally:
        followed.change_password(followed.hosted.password)
        followed.follow()
    followed.change("delete from @ where id <= 300")
    followed.until("select count(*) from @", 300)


@pytest.mark.security
@pytest.mark.attack("password-of-source")
def test_other_roles_do_not_read_the_connection(followed, make_role):
    role = make_role("ana", "dbdp_analyst")
    followed.here(f"set session authorization {role}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        followed.here("select subconninfo from pg_subscription")


def test_another_owner_is_refused_once_a_table_is_followed(followed):
    with pytest.raises(FollowError, match="is followed already, and belongs to postgres: leave out --owner"):
        followed_tables.follow(replace(followed.order, owner="olga"), lambda *_: None)


def test_two_actions_at_once_are_refused(case):
    done = run_here("follow", case.hosted.url(), case.table, "--url", case.target, "--stop", "--resync")
    assert done.returncode == 2
    assert "--resync and --stop exclude each other" in done.stderr
    done = run_here("follow", case.hosted.url(), case.table, "--url", case.target, "--stop", "--owner", "olga")
    assert "--owner olga is for a new copy" in done.stderr


@pytest.mark.slow
def test_errors_name_the_way_for_hosted_servers(hosted):
    """A role that is no superuser, and a database without dbdp, are told of docs/hosted.md."""
    install = run_here("install", "--url", hosted.url())
    assert install.returncode == 1
    assert "docs/hosted.md" in install.stderr
    with pytest.raises(ValueError, match=r"docs/hosted\.md"):
        connect(hosted.url())
    found = {each.check: each for each in examine(hosted.url())}
    assert found["PL/Python"].state == FAULT
    assert "docs/hosted.md" in found["PL/Python"].remedy


def test_doctor_says_whether_a_role_may_create_plpython(server_url, make_database, make_role, connection):
    """Where the language is available, but only to a superuser, it is no longer called available."""
    role = make_role("plain")
    connection.execute(f"alter role {role} login password 'plain'")
    url = make_database()
    plain = conninfo.make_conninfo(url, user=role, password="plain")
    found = {each.check: each for each in examine(plain)}["PL/Python"]
    assert (found.state, found.found) == (FAULT, f"available, but {role} may not create it: only a superuser may")
    assert {each.check: each for each in examine(url)}["PL/Python"].state == "ok"


@pytest.mark.slow
def test_a_source_without_logical_decoding_is_refused():
    """With the setting changed as the message says, there is no such refusal."""
    with hosted_server("wal_level = replica\nmax_replication_slots = 1\n") as small:
        small.execute("create table people (id int primary key)")
        with opened_source(small.url()) as source:
            table = hosted_table(source, "people", None)
            found = [*followed_tables.source_checks.refusals(source, table, 15, inserts_only=False)]
        assert [each.split(":")[0] for each in found] == [
            "the source (a PostgreSQL server) has wal_level replica, and logical replication needs logical",
            "the source has 1 left of max_replication_slots, and the first copy needs 2",
        ]
        with psycopg.connect(small.provider, autocommit=True) as provider:
            provider.execute("alter system set wal_level = logical")
            provider.execute("alter system set max_replication_slots = 5")
            provider.execute("create role rds_superuser; create role rds_replication")
        with opened_source(small.url()) as source:
            message = next(followed_tables.source_checks.refusals(source, table, 15, inserts_only=False))
        assert "Amazon RDS or Aurora" in message
        assert "rds.logical_replication = 1" in message
        small.cluster.stop()
        with small.cluster._locked():
            small.cluster._bring_up()
        with opened_source(small.url()) as source:
            assert [*followed_tables.source_checks.refusals(source, table, 15, inserts_only=False)] == []
            check_refused = followed_tables.source_checks.warnings(source)
            assert "max_slot_wal_keep_size of the source is -1" in next(check_refused)
