"""Reads of registered tables: what a row's stored width, or the number of a unit's rows, decides is nothing at all.

Neighbours here differ in one row, or in the rows of one unit, so that other bytes lie on a page, or more of them in the
table. Where a limit of the server is met, it is met by both, before the charge.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from shuffles import shuffled

from dbdp.sessions.inside.planner import PLANNED

Register = Callable[..., str]
TRAIN = "select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', epochs => 1)"


def wide(connection: psycopg.Connection, name: str, rows: int, length: int, *, first_is_short: bool) -> None:
    """A table of rows stored out of line, all on one page; the first one in line, where it is short."""
    connection.execute(f"create table {name} (x float8[], y int) with (autovacuum_enabled = off)")
    if first_is_short:
        connection.execute(f"insert into {name} values (array_fill(.1::float8, array[20]), 1)")
    connection.execute(
        f"insert into {name} select array_fill(i::float8, array[{length}]), i % 2 "
        f"from generate_series({1 + first_is_short}, {rows}) as i"
    )


@pytest.fixture
def python(connection: psycopg.Connection) -> Iterator[Callable[[str], None]]:
    """Run Python in the backend, which shares its modules with ours."""

    def run(code: str) -> None:
        connection.execute(f"do $python$\n{code}\n$python$ language plpython3u")

    yield run
    run(f"from dbdp.registry.tables import reading; reading.MOST_BYTES = 1 << 28; {RESTORE}")


RECORD = """
from dbdp.registry.tables import reading
from dbdp.sessions.inside import guarded_reads
if not hasattr(guarded_reads, 'whole'):
    guarded_reads.whole, guarded_reads.pieces = guarded_reads.scan, []
    def scan(session, source, least, value, rows, receive, *given):
        def noted(piece):
            guarded_reads.pieces.append([len(piece or b'')])
            return receive(piece)
        return guarded_reads.whole(session, source, least, value, rows, noted, *given)
    guarded_reads.scan = scan
guarded_reads.pieces.clear()
"""
RESTORE = """
from dbdp.sessions.inside import guarded_reads
if hasattr(guarded_reads, 'whole'):
    guarded_reads.scan = guarded_reads.whole
    del guarded_reads.whole
"""
TOLD = """
import plpy
from dbdp.sessions.inside import guarded_reads
plpy.execute(plpy.prepare("select set_config('tests.pieces', $1, false)", ["text"]), [repr(guarded_reads.pieces)])
"""


def pieces(connection: psycopg.Connection) -> list[list[int]]:
    connection.execute(f"do $python$\n{TOLD}\n$python$ language plpython3u")
    return json.loads(connection.execute("select current_setting('tests.pieces')").fetchone()[0])


LAYOUTS = ["table", "partitioned table", "groups", "units"]


def lay_out(connection: psycopg.Connection, register: Register, name: str, layout: str, *, first_is_short: bool) -> str:
    """Register a table of 120 rows of 2,000 numbers."""
    wide(connection, "w", 120, 2000, first_is_short=first_is_short)
    features, more = {"x": {"length": 2000, "norm": 5000}}, {}
    columns = "w.*, 'g' as g, row_number() over () % 30 as u"
    if layout == "partitioned table":
        connection.execute(f"create table {name} (x float8[], y int, g text, u int8) partition by list (y)")
        for value in (0, 1):
            connection.execute(f"create table {name}_{value} partition of {name} for values in ({value})")
        connection.execute(f"insert into {name} select {columns} from w")
    else:
        connection.execute(f"create table {name} as select {columns} from w")
    connection.execute("drop table w")
    if layout == "units":
        more = {"unit": "u", "max_rows": 4}
    elif layout == "groups":
        more = {"public_columns": "{g}"}
    return register(name, features=features, **more)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_piece_exceeds_what_public_facts_allow(connection, schema, register, python, layout):
    """A limit of 64 kB in place of 256 MB; one page of either table has more. Control: with the limit as it is."""
    names = [lay_out(connection, register, f"t{n}", layout, first_is_short=bool(n)) for n in (0, 1)]
    connection.execute("set dbdp.pack_memory = '256MB'")
    most: dict[int, list[int]] = {}
    for limit in (1 << 16, 1 << 28):
        python(f"from dbdp.registry.tables import reading; reading.MOST_BYTES = {limit}")
        for name in names:
            python(RECORD)
            if layout == "groups":
                connection.execute(
                    "select model from dbdp.dp_train_groups(%s, 'g', '{g}', 1, algorithm => 'bolt_on', epochs => 1)",
                    (name,),
                )
            else:
                assert sum(map(len, shuffled(connection, name, 2001))) == 120
            most.setdefault(limit, []).append(max(sum(batch) for batch in pieces(connection)))
    assert max(most[1 << 16]) <= 1 << 16
    if layout != "units":  # of which the pass over the table reads places alone
        assert min(most[1 << 28]) > 1 << 16


def test_wide_rows_are_read_alike_in_pieces_and_row_by_row(connection, schema, register):
    """The same rows in the order of one key, whatever the memory."""
    name, found = lay_out(connection, register, "t", "partitioned table", first_is_short=True), []
    for memory in ("1MB", "30MB", "1GB"):
        connection.execute(f"set dbdp.pack_memory = '{memory}'")
        found.append(np.concatenate(shuffled(connection, name, 2001, key="ab" * 32)))
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    assert len(np.unique(found[0], axis=0)) == 120


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["256MB", "100GB"])
@pytest.mark.attack("wide-page")
def test_page_over_a_gigabyte_trains_as_its_neighbour(connection, schema, register, spent, memory):
    """135 rows of 8 MB are on one page. The control joins them to one value; those of one neighbour are too large."""
    outcomes = []
    for number in (0, 1):
        wide(connection, f"t{number}", 135, 1_000_000, first_is_short=bool(number))
        name = register(f"t{number}", features={"x": {"length": 1_000_000, "norm": 1000}}, epsilon=1e6)
        try:
            connection.execute(
                f"select length(string_agg(dbdp_internal.array_bytes(x), '')) from t{number} where ctid < '(1,0)'"
            )
            outcomes.append("joined")
        except psycopg.errors.ProgramLimitExceeded:
            outcomes.append("above the limit")
        connection.execute(f"set dbdp.pack_memory = '{memory}'")
        connection.execute("select dbdp.dp_class_balance(%s, epsilon => 1)", (name,))
        assert spent(name)[0] > 0
    assert outcomes == ["above the limit", "joined"]


def test_record_beyond_memory_is_refused_with_remedy(connection, schema, register, spent):
    """A record that the memory does not hold is refused before the charge with the remedy."""
    wide(connection, "t", 10, 100_000, first_is_short=False)
    name = register("t", features={"x": {"length": 100_000, "norm": 1000}})
    connection.execute("set dbdp.pack_memory = '1MB'")
    with pytest.raises(psycopg.Error, match=r"a record of 100001 coordinates needs 8 MB of memory") as error:
        connection.execute(TRAIN, (name,))
    assert spent(name) == (0, 0)
    connection.execute(re.search(r"set dbdp.pack_memory = '\d+MB'", str(error.value))[0])
    connection.execute(TRAIN, (name,))
    assert spent(name)[0] > 0


@pytest.mark.attack("array-length")
def test_array_of_another_length_is_not_fetched(connection, schema, register):
    """A compressed one of 2 MB is stored in 24 kB, less than one record. The control unpacks it."""
    connection.execute("create table t (x float8[], y int)")
    connection.execute("insert into t select array_fill(0::float8, array[3000]), 1 from generate_series(1, 50)")
    connection.execute("insert into t values (array_fill(0::float8, array[250000]), 1)")
    sizes = "select pg_column_size(x), dbdp_internal.array_size(x) from t order by 2 desc limit 1"
    stored, whole = connection.execute(sizes).fetchone()
    assert stored < 8 * 3000 < whole == 20 + 8 * 250_000
    name = register("t", features={"x": {"length": 3000, "norm": 1}})
    rows = np.concatenate(shuffled(connection, name, 3001))
    assert sum((row == 0).all() for row in rows) == 1


# --- units: how many rows one of them has ---------------------------------------------------------------

MORE = 20_000


@pytest.fixture
def unit_neighbours(connection: psycopg.Connection, schema: str, register: Register) -> list[str]:
    """Of 100 units, one has 20,000 rows more in the second table."""
    row = "array_fill(.1::float8, array[5])"
    connection.execute(
        f"create table u0 as select {row} as x, i % 2 as y, i % 100 as u from generate_series(1, 1000) i"
    )
    connection.execute(
        f"create table u1 as table u0; insert into u1 select {row}, 1, 5 from generate_series(1, {MORE})"
    )
    features = {"x": {"length": 5, "norm": 1}}
    return [register(f"u{n}", features=features, unit="u", max_rows=4, epsilon=1e6) for n in (0, 1)]


def temporary_blocks(connection: psycopg.Connection, sql: str, *given: object) -> list[int]:
    """Blocks of temporary files that EXPLAIN reports."""
    plan = connection.execute(f"explain (analyze, buffers, format json) {sql}", given).fetchone()[0][0]["Plan"]
    return [plan["Temp Read Blocks"], plan["Temp Written Blocks"]]


ANSWERS = {
    "dp_logreg": TRAIN,
    "dp_sgd": "select model from dbdp.dp_train(%s, 1, 1e-6, 'dp_sgd', epochs => 1)",
    "class balance": "select dbdp.dp_class_balance(%s, epsilon => 1)",
    "bounds": "select dbdp.dp_bounds(%s, 'y', epsilon => 1)",
    "categories": "select * from dbdp.dp_categories(%s, 'y', epsilon => 9, delta => 1e-6)",
    "summary": "select dbdp.dp_summarize(%s, epsilon => 1, delta => 1e-6)",
    "describe": "select * from dbdp.dp_describe(%s, epsilon => 9, delta => 1e-6)",
    "tuning": "select model "
    "from dbdp.dp_tune(%s, '[{\"regularisation\": 0.1}, {\"regularisation\": 1}]', 10, algorithm => 'bolt_on')",
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.attack("no-temporary-files")
def test_rows_of_a_unit_decide_no_file_and_no_error(connection, unit_neighbours, spent, answer):
    """With no room for temporary files at all. The control counts units as a plain query does: it fails for one."""
    connection.execute("set work_mem = '64kB'; set temp_file_limit = 0")
    for name in unit_neighbours:
        assert temporary_blocks(connection, ANSWERS[answer], name) == [0, 0]
        assert spent(name)[0] > 0
    connection.execute("select count(distinct u) from u0")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
        connection.execute("select count(distinct u) from u1")


def test_units_are_counted_as_they_are_equal(connection, schema, register):
    """By the value, of each type: integers of the same hash, long texts. Null is nobody's."""
    values = {
        "int8": "(i % 7) + (i % 7) * 4294967296",
        "int2": "i % 7",
        "uuid": "md5((i % 7)::text)::uuid",
        "date": "date '2020-01-01' + i % 7",
        "timestamptz": "timestamptz '2020-01-01' + make_interval(hours => i % 7)",
        "text": "repeat(chr(228), 1000) || i % 7",
        "char(9)": "i % 7",
    }
    for number, (kind, value) in enumerate(values.items()):
        connection.execute(f"create table t{number} (u {kind}, y int, z int)")
        connection.execute(f"insert into t{number} select {value}, i % 2, i from generate_series(1, 70) as i")
        connection.execute(f"insert into t{number} values (null, 1, 1)")
        name = register(f"t{number}", features={"z": [0, 70]}, unit="u", max_rows=3)
        rows = connection.execute("select rows from dbdp.dataset where name = %s", (name,)).fetchone()
        assert rows == (21,), kind


# --- plans ----------------------------------------------------------------------------------------------

NO_PLAN = {  # of PostgreSQL's planner, but without a say in these queries; and why
    "default_statistics_target": "of ANALYZE"
}


def test_every_planner_parameter_is_set_while_reading(connection):
    """Every parameter of the planner is set while a table is read."""
    sql = "select name from pg_settings where category like 'Query Tuning%' and context = 'user'"
    connection.execute("set lc_messages = 'C'")
    named = {name for (name,) in connection.execute(sql).fetchall()}
    assert len(named) > 40
    assert named - set(NO_PLAN) <= set(PLANNED)
    for name, value in PLANNED.items():
        if connection.execute("select current_setting(%s, true)", (name,)).fetchone()[0] is not None:
            connection.execute("select set_config(%s, %s, false)", (name, value))


def test_parameters_are_pinned_only_within_a_read(connection, schema):
    """The parameters are pinned within a read; afterwards they are the session's again."""
    connection.execute("create table t (); set enable_sort = on; set work_mem = '77kB'")
    code = """
import plpy
from dbdp.sessions.inside.guarded_reads import reading
from dbdp.sessions.inside.planner import PLANNED
from dbdp.registry.border import ServerSession
session = ServerSession(plpy)
def now(name):
    return session.query("select current_setting($1, true) as value", name)[0]["value"]
before = {name: now(name) for name in PLANNED}
with reading(session, "t"):
    within = {name: now(name) for name in PLANNED}
assert within == {name: None if before[name] is None else value for name, value in PLANNED.items()}, within
assert {name: now(name) for name in PLANNED} == before
assert before["work_mem"] == "77kB"
"""
    connection.execute(f"do $python$\n{code}\n$python$ language plpython3u")


@pytest.mark.parametrize(
    "call", ["resume('0123456789abcdef')", "receive('0123456789abcdef', 'x')", "receive(null, null)"]
)
def test_nothing_is_resumed_or_received_that_was_not_begun(connection, call):
    with pytest.raises(psycopg.Error, match=r"no (suspended )?read named .*; only dbdp itself calls") as error:
        connection.execute(f"select dbdp_internal.{call}")
    assert error.value.sqlstate == "DP001"


PAUSED = """
from dataclasses import replace
import plpy
from dbdp.registry import datasets
from dbdp.registry.tables import reading, records
from dbdp.registry.border import ServerSession
session = ServerSession(plpy)
dataset = datasets.load(session, NAME)
encoder = records.encoder_of(session, replace(dataset, declaration=replace(dataset.declaration, encoding="scaled")))
whole, calls = reading.stored_at, []
def stored_at(*given):
    if not calls:
        plpy.execute("select pg_advisory_lock(20202), pg_advisory_unlock(20202)")
    calls.append(given)
    return whole(*given)
reading.stored_at = stored_at
try:
    rows = [row for _, raw in records.read(session, dataset, encoder, memory=1 << 20) for row in encoder.rows(raw)]
finally:
    reading.stored_at = whole
if not all(row[0] > 0 for row in rows):
    plpy.error("a row is not as it was")
if not any(row["z"] == 0 for row in plpy.execute(f"select z from {dataset.source}")):
    plpy.error("nothing was changed")
"""
WAITING = "select from pg_locks where locktype = 'advisory' and objid = 20202 and not granted"


def test_all_passes_over_units_see_one_snapshot(connection, schema, register, server_url):
    """Rows that another session changes between two passes are read as they were; a query after them is the control."""
    connection.execute("create table t as select i as z, 1 as y, i % 50 as u from generate_series(1, 500) as i")
    name = register("t", features={"z": [0, 500]}, unit="u", max_rows=10, intercept=False)
    code = PAUSED.replace("NAME", repr(name))
    with psycopg.connect(server_url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        other.execute("select pg_advisory_lock(20202)")
        connection.execute("set search_path = pg_catalog")
        reading = pool.submit(connection.execute, f"do $python$\n{code}\n$python$ language plpython3u")
        while not other.execute(WAITING).fetchall() and not reading.done():
            time.sleep(0.01)
        other.execute(f"update {schema}.t set z = 0")
        other.execute("select pg_advisory_unlock(20202)")  # after the commit, so that the control sees the change
        reading.result()
