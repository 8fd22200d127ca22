"""No size, width or number of rows shows in a call: neither in its outcome nor in what the session can count of it.

The neighbours here differ in what decides how much is read: batches without a row, one unit or row more, around a
capacity too, values in line and out of line, one huge value. A kind is a pair of such tables with a declaration. Every
call of `test_counters.CALLS` is made on every kind: on both tables it has the same outcome, an answer or one refusal
before the charge, and the same counts. So a new call, kind or type of column is covered by being in its list.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import psycopg
import pytest
from attacker import Arena, allow
from observing import alike, counted_in_session, locks
from pairs import each_value_quick, others_slow
from test_counters import CALLER, CALLS, counted

pytestmark = pytest.mark.security
LENGTH, R = 300, 60  # numbers of a row, and rows of a unit: at 1 MB more than a batch has slots
COLUMNS = f"""
c.u::int as u, j::int as j, array_fill(((c.u * 7 + j) % 11) / 400.0::float8, array[{LENGTH}]) as x,
((c.u + j) % 2)::int as y, ((c.u + j) % 10) / 10.0::float8 as z, chr(97 + ((c.u + j) % 3)::int) as g"""
UNITS, GROUPED = f"unit => 'u', max_rows => {R}", "public_columns => '{g}'"
RANDOM = "(select array_agg(random()) from generate_series(1, %s))"
MEMORIES = ("1MB", "2MB", "256MB")


APART = "unit => 'u', max_rows => 1000"  # at 1 MB a pass over the table finds 4 units
VECTOR, COLUMN = {"x": {"length": LENGTH, "norm": 1}}, {"z": [-1, 1], "g": ["a", "b"]}


def of_units(*rows: int) -> str:
    """Units with so many rows each."""
    units = f"unnest('{{{','.join(map(str, rows))}}}'::int[]) with ordinality as c(k, u)"
    return f"select {COLUMNS} from {units}, generate_series(1, c.k) as j"


def odd(column: str, value: str) -> tuple[str, str]:
    """Neighbours of 90 rows, of which one has an odd value."""
    columns = ", ".join(f"case when j = 10 then {value} else {c} end as {c}" if c == column else c for c in "xyzg")
    return of_units(90), f"select u, j, {columns} from ({of_units(90)}) as t"


def at_most(number: int, declared: str) -> str:
    """A declaration with a capacity."""
    return f"{declared}, capacity => {number}"


class Kind(NamedTuple):
    """Rows of two neighbours, and what is declared of them."""

    rows: tuple[str, str]
    declared: str
    features: dict[str, Any] = VECTOR
    partitioned: bool = False


REAL = "label => 'z', label_bounds => '{0,1}'"
KINDS = {
    "a batch without a row": Kind((of_units(*[R] * 8), of_units(*[R] * 7, 1)), UNITS),
    "a unit of many rows": Kind((of_units(*[3] * 8), of_units(*[3] * 7, 900)), UNITS),
    "a unit more below a capacity": Kind((of_units(*[2] * 5), of_units(*[2] * 6)), at_most(9, UNITS)),
    "a unit more than a capacity": Kind((of_units(*[2] * 9), of_units(*[2] * 10)), at_most(9, UNITS)),
    "a unit of a further pass": Kind((of_units(*[2] * 8), of_units(*[2] * 9)), at_most(9, APART), COLUMN),
    "the first unit": Kind((of_units(), of_units(R)), at_most(9, UNITS)),
    "a unit of a partition": Kind((of_units(*[R] * 8), of_units(*[R] * 7, 1)), at_most(9, UNITS), partitioned=True),
    "a row more below a capacity": Kind((of_units(86), of_units(87)), at_most(90, GROUPED)),
    "a row more than a capacity": Kind((of_units(90), of_units(91)), at_most(90, GROUPED)),
    "a batch more than a capacity": Kind((of_units(90), of_units(300)), at_most(90, GROUPED), partitioned=True),
    "the first row": Kind((of_units(), of_units(1)), at_most(90, GROUPED)),
    "another private group": Kind(odd("g", "'b'"), at_most(90, "mode => 'basic'"), COLUMN),
    "no private group": Kind(odd("g", "repeat('c', 10000000)"), at_most(90, "mode => 'basic'"), COLUMN),
    "a real label out of its bounds": Kind(odd("z", "'infinity'"), at_most(90, f"{REAL}, {GROUPED}")),
    "a real label of a unit": Kind((of_units(*[R] * 8), of_units(*[R] * 7, 1)), f"{REAL}, {UNITS}"),
    "out of line": Kind(odd("x", RANDOM % LENGTH), GROUPED),
    "out of line in a partition": Kind(odd("x", RANDOM % LENGTH), at_most(90, GROUPED), partitioned=True),
    "huge and compressed": Kind(odd("x", "array_fill(0::float8, array[1000000])"), GROUPED),
    "huge and out of line": Kind(odd("x", RANDOM % 200_000), at_most(90, GROUPED)),
}
Pairs = Callable[[str], dict[str, str]]


@pytest.fixture(scope="module")
def pairs(arena: Arena) -> Pairs:
    """Make the two tables of a kind."""

    @cache
    def make(kind: str) -> dict[str, str]:
        return {each: made(arena, rows, KINDS[kind]) for each, rows in zip("ab", KINDS[kind].rows, strict=True)}

    return make


def made(arena: Arena, rows: str, kind: Kind) -> str:
    """Make and register a table."""
    owner, name = arena.session("owner"), f"s_{secrets.token_hex(4)}"
    by = " partition by hash (u, j)" if kind.partitioned else ""
    owner.execute(f"create table {name} (u int, j int, x float8[], y int, z float8, g text){by}")
    for part in range(3 if kind.partitioned else 0):
        owner.execute(f"create table {name}_{part} partition of {name} for values with (modulus 3, remainder {part})")
    owner.execute(f"insert into {name} {rows}")
    label = "" if "label" in kind.declared else "label => 'y', positive => '1', "
    mode = "" if "mode" in kind.declared else "mode => 'basic', "
    register = "select dbdp.register_dataset(name => %s, source => %s::regclass, features => %s, epsilon => 100000, "
    source = f"{arena.names['owner']}.{name}"
    owner.execute(f"{register} delta => .5, {label} {mode} {kind.declared})", (name, source, json.dumps(kind.features)))
    allow(owner, name, arena.names["analyst"])
    return name


def outcome(session: psycopg.Connection, sql: str, name: str, others: tuple[Any, ...]) -> str:
    """Whether a call answers, or what it says: without the name of the dataset."""
    try:
        session.execute(sql, (name, *others))
    except psycopg.Error as error:
        return re.sub(name, "T", str(error.diag.message_primary))
    return "answered"


def seen(arena: Arena, session: psycopg.Connection, key: str, name: str) -> Any:
    """What the session sees of a call; a first one prepares what is prepared once for each table."""
    sql, others = CALLS[key]
    if (found := outcome(session, sql, name, others)) != "answered":
        return found
    shown: list[dict[str, Any]] = []

    def call() -> None:
        shown.append(counted_in_session(session, name, lambda: session.execute(sql, (name, *others))))

    counters = counted(session, f"{arena.names['owner']}.{name}", call)
    return shown[0] | {"counters": counters}


@pytest.mark.parametrize(("kind", "key", "memory"), each_value_quick(list(KINDS), list(CALLS), MEMORIES))
@pytest.mark.attack("sizes")
def test_no_size_or_width_shows_in_a_call(arena, pairs, kind, key, memory):
    pair, session = pairs(kind), arena.session(CALLER.get(key, "analyst"))
    session.execute("select set_config('dbdp.pack_memory', %s, false)", (memory,))
    one, other = alike(lambda each: seen(arena, session, key, pair[each]))
    assert one == other
    assert not (isinstance(one, str) and "after its charge" in one)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.control("sizes")
def test_every_kind_is_answered(arena, pairs, kind):
    """A control: a kind on which every call is refused would show nothing."""
    sql, others = CALLS["summary"]
    for each in "ab":
        assert outcome(arena.session("analyst"), sql, pairs(kind)[each], others) == "answered"


UNDONE = {  # what each control undoes in a backend, the kind in which that shows, and what differs then
    "the public number of passes": (
        """
units, records = (sys.modules[f"dbdp.registry.tables.{name}"] for name in ("privacy_units", "records"))
places, slots = units.selected_places, units.slots
units.selected_places = lambda *given: places(*given[:6])
units.slots = lambda *given, **more: records._filled(
    slots(*given, **more), given[4], more["capacity"] * given[2].max_rows, more["memory"])""",
        "a unit of a further pass",
        "portals",
    ),
    "the public number of requests": (
        """
reads = sys.modules["dbdp.sessions.inside.guarded_reads"]
whole = reads.scan
def scan(session, source, least, value, rows, receive, *given):
    return whole(session, source, least, value, rows, lambda piece: receive(piece) or True, *given)
reads.scan = scan""",
        "a batch more than a capacity",
        "subtransactions",
    ),
}
BEGIN = """
create schema test_undone; grant usage on schema test_undone to public;
create function test_undone.begin() returns void language plpython3u as $begin$
import sys{}
$begin$"""


@contextmanager
def undone(admin: psycopg.Connection, code: str) -> Iterator[str]:
    """Give a statement by which a session changes the code that it runs."""
    admin.execute(BEGIN.format(code))
    try:
        yield "select test_undone.begin()"
    finally:
        admin.execute("drop schema test_undone cascade")


@pytest.mark.parametrize("name", UNDONE)
@pytest.mark.control("sizes")
def test_a_number_that_follows_the_rows_would_be_noticed(arena, admin, pairs, name):
    code, kind, count = UNDONE[name]
    with undone(admin, code) as begin, arena.login("analyst") as fresh:
        fresh.execute(f"select dbdp.about(); set dbdp.pack_memory = '1MB'; {begin}")
        one, other = alike(lambda each: seen(arena, fresh, "class balance", pairs(kind)[each]))
    assert one[count] != other[count]


@pytest.mark.control("sizes")
def test_a_lock_and_a_cursor_more_would_be_noticed(arena, owner, pairs):
    name = pairs("out of line")["a"]
    with owner.transaction():
        before = counted_in_session(owner, name, lambda: None)
        owner.execute("declare more cursor for select 1")
        after = counted_in_session(owner, name, lambda: owner.execute(f"lock table {name} in row share mode"))
    assert after["locks"] - before["locks"] == {("relation", "T", None, None, *[False] * 2, None, None, *LOCKED): 1}
    assert after["cursors"] == before["cursors"] + 1


LOCKED = ("RowShareLock", True)
WAITING = "select count(*) from pg_locks where pid = %s and not granted"
TOASTS = "select reltoastrelid::regclass::text from pg_class where relname ~ %s and reltoastrelid <> 0"


@pytest.mark.parametrize("kind", others_slow([each for each in KINDS if "out of line" in each], "huge and out of line"))
@pytest.mark.attack("sizes")
def test_values_out_of_line_are_locked_in_every_world(arena, admin, pairs, kind):
    """A call waits for the index of such values on either table; the control does not lock it before it reads."""
    pair, code = pairs(kind), '\nsys.modules["dbdp.sessions.inside.guarded_reads"]._lock = lambda *given: None'
    assert [waits(arena, admin, pair[each]) for each in "ab"] == [True, True]
    with undone(admin, code) as begin:
        found = [waits(arena, admin, pair[each], begin) for each in "ab"]
    assert found == [False, "huge" not in kind]  # a value of another length is not fetched


@pytest.mark.attack("sizes")
def test_statistics_out_of_line_are_locked_in_every_world(arena, admin, owner):
    """Those of a column with long values are, of which the planner looks some up; the control as above."""
    pair, long = {}, "(select string_agg(md5(j * 100 + k || ''), '') from generate_series(1, 30) as k)"
    for each, text in {"a": "j::text", "b": long}.items():
        pair[each] = made(arena, of_units(*[3] * 30), Kind(("", ""), UNITS.replace("'u'", "'g'")))
        owner.execute(f"alter table {pair[each]} set (autovacuum_enabled = off); update {pair[each]} set g = {text}")
    code = '\nsys.modules["dbdp.sessions.inside.guarded_reads"]._lock = lambda *given: None'

    def waits_for(each: str, before: str = "select") -> bool:
        return waits(arena, admin, pair[each], before, warm=lambda: owner.execute(f"analyze {pair[each]}"))

    assert waits_for("a") and waits_for("b")
    with undone(admin, code) as begin:
        assert waits_for("b", begin)
        assert not all(waits_for("a", begin) for _ in range(5))  # autovacuum may just have analysed a table of dbdp's


def waits(
    arena: Arena,
    admin: psycopg.Connection,
    name: str,
    before: str = "select",
    warm: Callable[[], Any] | None = None,
) -> bool:
    """Whether a call waits for an index of what is stored out of line, which another session holds.

    It is that of the table and its partitions, or, if all that a session looks up once was looked up before statistics
    are made, that of statistics.
    """
    sql, others = CALLS["class balance"]
    with arena.login("analyst") as fresh, arena.admin() as other, ThreadPoolExecutor(1) as pool:
        fresh.execute(f"select dbdp.about(); {before}")
        other.autocommit = False
        if warm is not None:
            fresh.execute(sql, (name, *others))
            warm()
        for (toast,) in admin.execute(TOASTS, (f"^({name}(_.)?|pg_statistic)$" if warm else f"^{name}(_.)?$",)):
            if warm is None or toast.endswith("_2619"):
                other.execute(f"reindex table {toast}")
        call = pool.submit(fresh.execute, sql, (name, *others))
        while not (waiting := admin.execute(WAITING, (fresh.info.backend_pid,)).fetchone()[0]) and not call.done():
            pass
        other.rollback()
        call.result()
    return waiting > 0


@pytest.mark.parametrize("level", others_slow(["read committed", "repeatable read"], "repeatable read"))
@pytest.mark.attack("sizes")
def test_nothing_finer_than_a_relation_is_locked(arena, admin, owner, pairs, level):
    """As a second session sees it, which looks all the time; the control reads the rows in a serializable one."""
    pair, (sql, others), found = pairs("a unit more below a capacity"), CALLS["class balance"], set()
    with arena.login("analyst") as fresh, ThreadPoolExecutor(1) as pool:
        fresh.execute(f"set default_transaction_isolation = '{level}'; set dbdp.pack_memory = '1MB'")
        for name in pair.values():
            call = pool.submit(fresh.execute, sql, (name, *others))
            while not call.done():
                found |= set(locks(admin, name, fresh.info.backend_pid))
            call.result()
    assert ("relation", "T") in {lock[:2] for lock in found}
    found = {lock for lock in found if not re.match("pg_(?!toast)", str(lock[1]))}  # rows of temporary tables
    assert not [lock for lock in found if (lock[2], lock[3]) != (None, None) or lock[-2] == "SIReadLock"]
    with owner.transaction():
        owner.execute("set transaction isolation level serializable")
        owner.execute(f"select from {pair['b']} where ctid = '(0,1)'").fetchall()
        assert [lock for lock in locks(admin, pair["b"], owner.info.backend_pid) if lock[3] == 1]
