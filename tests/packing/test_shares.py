"""Shares: the order of a key is one uniform permutation in every session, and its parts are disjoint."""

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import numpy as np
import psycopg
import pytest
from pairs import others_slow
from shuffles import SCALED, assert_places_are_even, shuffled

from dbdp.algorithms import Request
from dbdp.learning.rows.encoding import RandomProjection

Register = Callable[..., str]
ROWS = 3000
ONE = {"i": {"bounds": [0, ROWS]}}


@pytest.fixture
def numbered(connection: psycopg.Connection, schema: str, register: Register) -> str:
    """A dataset whose one feature numbers its rows."""
    connection.execute(f"create table numbered as select i, i % 2 y from generate_series(0, {ROWS - 1}) i")
    return register("numbered", features=ONE, intercept=False)


def fresh_key() -> str:
    return os.urandom(32).hex()


def numbers(connection: psycopg.Connection, name: str, count: int = ROWS, **options: Any) -> list[int]:
    """The numbers of the rows, in the order in which they are packed."""
    packed = np.concatenate(shuffled(connection, name, **SCALED, **options))
    return np.rint(packed[:, 0].astype(float) * count / (1 - 2**-22)).astype(int).tolist()


SHARED = [(ROWS, "256MB"), (200_000, "256MB"), (200_000, "1MB")]


@pytest.mark.parametrize(("count", "memory"), others_slow(SHARED, SHARED[0], SHARED[2]))
def test_shares_are_disjoint_and_together_the_table(connection, schema, register, count, memory):
    connection.execute(f"create table numbered as select i, i % 2 y from generate_series(0, {count - 1}) i")
    name, key = register("numbered", features={"i": {"bounds": [0, count]}}, intercept=False), fresh_key()
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    whole = numbers(connection, name, count, key=key)
    assert sorted(whole) == list(range(count))
    borders = [0, 1, 2, 700, 1400, count // 2, count - 5, count - 1, count]
    shares = [numbers(connection, name, count, key=key, first=first, last=last) for first, last in pairwise(borders)]
    assert [number for share in shares for number in share] == whole
    assert numbers(connection, name, count, key=key, first=700) == whole[700:]


SETTINGS = {
    "as they are": "",
    "little memory": "set dbdp.pack_memory = '1MB'",
    "no scans by place": "set enable_tidscan = off",
    "no sequential scans": "set enable_seqscan = off",
    "shared scans": "set synchronize_seqscans = on",
    "another search_path": "set search_path = pg_temp",
    "parallel plans": "set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0",
    "seeded": "select setseed(0.5)",
}


@pytest.mark.parametrize("kind", ["table", pytest.param("partitioned table", marks=pytest.mark.slow)])
def test_every_session_has_the_same_order_whatever_its_settings(server_url, connection, schema, register, kind):
    """40,000 rows of 32 bytes: more than the least memory holds, so that both ways are taken."""
    count = 40_000
    rows = f"select i, i % 2 y from generate_series(0, {count - 1}) i"
    if kind == "table":
        connection.execute(f"create table t as {rows}; update t set y = y where i % 3 = 0")
    else:
        connection.execute(f"""
create table t (i int, y int) partition by range (i);
create table t1 partition of t for values from (0) to (5000);
create table t2 partition of t for values from (5000) to (9000) partition by hash (i);
create table t3 partition of t2 for values with (modulus 2, remainder 0);
create table t4 partition of t2 for values with (modulus 2, remainder 1);
create table t5 partition of t default;
insert into t {rows}""")
    name, key, orders = register("t", features={"i": {"bounds": [0, count]}}, intercept=False), fresh_key(), {}
    with psycopg.connect(server_url, autocommit=True) as other:
        for setting, statement in SETTINGS.items():
            other.execute(f"reset all; {statement}")
            orders[setting] = numbers(other, name, count, key=key, first=10, last=count - 10)
    orders["another session"] = numbers(connection, name, count, key=key, first=10, last=count - 10)
    assert len(orders["as they are"]) == count - 20
    for setting, order in orders.items():
        assert order == orders["as they are"], setting


def test_one_snapshot_has_one_order_while_others_write(server_url, connection, numbered, schema):
    key = fresh_key()
    with ExitStack() as stack:
        workers = [stack.enter_context(psycopg.connect(server_url)) for _ in range(2)]
        for worker in workers:
            worker.execute("set transaction isolation level repeatable read")
        snapshot = workers[0].execute("select pg_export_snapshot()").fetchone()[0]
        workers[1].execute(f"set transaction snapshot '{snapshot}'")
        first = numbers(workers[0], numbered, key=key, last=1500)
        before = numbers(connection, numbered, key=key)
        connection.execute(f"update {schema}.numbered set y = 1 - y where i < 100")
        second = numbers(workers[1], numbered, key=key, first=1500)
    assert sorted(first + second) == list(range(ROWS))
    assert numbers(connection, numbered, key=key) != before  # the rows were moved, and with them their slots


@pytest.mark.parametrize("memory", ["256MB", "1MB"])
def test_a_row_comes_to_every_share_and_place_equally_often(connection, schema, register, memory):
    connection.execute(f"set dbdp.pack_memory = '{memory}'")

    def order(name: str, count: int) -> list[int]:
        key = fresh_key()
        parts = (
            numbers(connection, name, count, key=key, first=at, last=at + 10_000) for at in range(0, count, 10_000)
        )
        return [number for part in parts for number in part]

    assert_places_are_even(connection, register, order)


@pytest.mark.parametrize(
    ("options", "memory"),
    [
        ({}, "256MB"),
        pytest.param({}, "1MB", marks=pytest.mark.slow),
        pytest.param({"key": "00" * 32}, "1MB", marks=pytest.mark.slow),
        ({"key": "00" * 32, "first": 25_000, "last": 115_000}, "256MB"),
        pytest.param({"key": "00" * 32, "first": 25_000, "last": 115_000}, "1MB", marks=pytest.mark.slow),
    ],
)
def test_cuts_begin_blocks_and_parts_have_as_few_as_they_need(connection, schema, register, options, memory):
    """115,000 rows of 96 bytes are ten times the least memory; a block has 10,922 of them."""
    connection.execute(
        "create table many as select i, i % 2 y, array_fill(i::float8, array[20]) x from generate_series(1, 115000) i"
    )
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    name = register("many", features={"x": {"length": 20, "norm": 1e6}})
    packed = options.get("last", 115_000) - options.get("first", 0)
    cuts = [1, 10_923, 40_000, 40_001, packed - 1]
    found = shuffled(connection, name, 21, cuts=cuts, **options)
    expected = []
    for size in np.diff([0, *cuts, packed]).tolist():
        expected += [10_922] * (size // 10_922) + [size % 10_922] * (size % 10_922 > 0)
    assert [len(block) for block in found] == expected
    whole = Counter(row.tobytes() for row in np.concatenate(found))
    assert len(whole) == packed
    if options:
        uncut = np.concatenate(shuffled(connection, name, 21, **options))
        assert (np.concatenate(found) == uncut).all()


def test_the_rows_are_those_without_a_key(connection, schema, register):
    connection.execute("""
create table mixed as
select case i % 7 when 0 then null when 1 then 'NaN' else i / 99.0 end::float8 a,
  case i % 3 when 0 then 'u' when 1 then null else 'w' end t, i % 5 y
from generate_series(1, 500) i""")
    name = register("mixed", features={"a": [0, 5], "t": ["u", "v"]}, positive=None, classes=["1", "2", "3"])
    plain = Counter(row.tobytes() for row in np.concatenate(shuffled(connection, name, 4)))
    keyed = Counter(row.tobytes() for row in np.concatenate(shuffled(connection, name, 4, key=fresh_key())))
    assert keyed == plain
    assert len(plain) > 10


@pytest.mark.parametrize("features", ["array", "columns"])
def test_a_projection_is_applied_to_every_row(connection, schema, register, features):
    random = np.random.default_rng(6)
    values = np.round(random.uniform(0, 1, size=(200, 30)), 3)
    columns = [f"c{number}" for number in range(30)]
    connection.execute(f"create table wide (x float8[], y int, {', '.join(f'{c} float8' for c in columns)})")
    for row in values.tolist():
        marks = ", ".join(["%s"] * 32)
        connection.execute(f"insert into wide values ({marks})", ([*row], 1, *row))
    declared = {"x": {"length": 30, "norm": 6}} if features == "array" else {column: [0, 1] for column in columns}
    name = register("wide", features=declared)
    packed = np.concatenate(shuffled(connection, name, 5, projection={"dimension": 4, "seed": 11}))
    beside = 30**-0.25 if features == "array" else 1.0
    unit = np.hstack([values / 6 if features == "array" else values, np.full((200, 1), beside)])
    unit /= np.linalg.norm(unit, axis=1)[:, None]
    expected = np.hstack([unit[:, :30] @ RandomProjection(4, 11).matrix(30), unit[:, 30:]])
    expected /= np.maximum(1, np.linalg.norm(expected, axis=1))[:, None]
    packed, expected = (rows[np.lexsort(np.round(rows.T, 5))] for rows in (packed[:, :5].astype(float), expected))
    assert np.abs(packed - expected).max() < 1e-6


def test_hostile_rows_are_projected_to_zero_rows_without_a_word(connection, schema, register):
    connection.execute("create table hostile (x float8[], y int)")
    for row in ("null, 1", "'{1, NaN, 2}', 1", "'{1, Infinity, 2}', 1", "'{1, 2}', 1", "'{1, 2, 3}', null"):
        connection.execute(f"insert into hostile values ({row})")
    connection.execute("insert into hostile values ('{1e308, -1e308, 1e308}', 1)")
    name = register("hostile", features={"x": {"length": 3, "norm": 1}}, negative="0", intercept=False)
    notices: list[str] = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    connection.execute("set client_min_messages = log")
    rows = np.concatenate(shuffled(connection, name, 2, projection={"dimension": 2, "seed": 0}))
    assert sorted(rows.any(axis=1).tolist()) == [False] * 5 + [True]
    assert np.isfinite(rows).all()
    assert notices == []


REFUSED = [
    ("[1]", "options of shuffle must be an object of key, first, last, cuts, projection"),
    ('{"seed": 1}', "options of shuffle must be an object"),
    (None, "options is required, e.g. options => a value"),
    ('{"first": 1}', "first and last need a key"),
    ('{"last": 1}', "first and last need a key"),
    (json.dumps({"key": "00" * 31}), "key has 31 bytes; it must have at least 32"),
    ('{"key": "secret"}', "key must be written in hexadecimal digits, two for each byte"),
    ('{"key": 5}', "key must be written in hexadecimal digits"),
    ('{"key": "KEY", "first": 5, "last": 5}', "first = 5 and last = 5 must be whole numbers with first < last"),
    ('{"key": "KEY", "first": -1}', "first = -1 and last = None must be whole"),
    ('{"key": "KEY", "first": 0.5}', "first = 0.5 and last"),
    ('{"key": "KEY", "last": "5"}', "and last = '5' must be whole"),
    ('{"key": "KEY", "last": true}', "and last = True must be whole"),
    ('{"key": "KEY", "last": 3001}', "last = 3001 is above the 3000 rows of dataset"),
    ('{"key": "KEY", "first": 3000}', "first = 3000 must be below the 3000 rows"),
    ('{"cuts": 5}', "cuts = 5 must be a list of whole numbers"),
    ('{"cuts": [5, 4]}', r"cuts = \[5, 4\] must be increasing whole numbers, above 0"),
    ('{"cuts": [5, 5]}', "must be increasing whole numbers"),
    ('{"cuts": [0, 5]}', "must be increasing whole numbers, above 0"),
    ('{"cuts": [3000]}', r"cuts = \[3000\] must be below the 3000 rows that are packed"),
    ('{"key": "KEY", "first": 5, "last": 9, "cuts": [4]}', "must be below the 4 rows"),
    ('{"cuts": ["5"]}', "must be increasing whole numbers"),
    ('{"projection": 5}', 'projection needs exactly "dimension" and "seed"'),
    ('{"projection": {"dimension": 1}}', 'projection needs exactly "dimension" and "seed"'),
    ('{"projection": {"dimension": 0, "seed": 1}}', "dimension of the projection = 0 must be a whole"),
    ('{"projection": {"dimension": 1, "seed": 4294967296}}', "seed of the projection = 4294967296"),
    ('{"projection": {"dimension": 3, "seed": 1}}', "dimension = 3 of the projection must be below the 3 feat"),
]


def test_options_of_shares_without_sense_are_refused(connection, schema, register):
    connection.execute("create table t as select array[1, 2, 3]::float8[] x, 1 y from generate_series(1, 3000)")
    name = register("t")
    connection.execute("create temporary table blocks (block_no int8, block bytea)")
    for given, message in REFUSED:
        options = given and given.replace("KEY", fresh_key())
        with pytest.raises(psycopg.Error, match=message) as error:
            connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.blocks', %s::json)", (name, options))
        assert error.value.diag.message_primary.startswith("dbdp: ")
    assert connection.execute("select count(*) from blocks").fetchone() == (0,)


def test_a_projection_beyond_memory_is_refused_with_a_remedy(connection, schema, register):
    connection.execute("create table t as select array_fill(0::float8, array[20000]) x, 1 y from generate_series(1, 3)")
    name = register("t", features={"x": {"length": 20_000, "norm": 1}})
    connection.execute("set dbdp.pack_memory = '1MB'")
    options = {"projection": {"dimension": 10, "seed": 1}}
    with pytest.raises(psycopg.Error, match=r"needs 4 MB of memory, above dbdp.pack_memory") as error:
        shuffled(connection, name, 11, **options)
    remedy = error.value.diag.message_primary.partition("; ")[2].partition(", or ")[0]
    connection.execute(remedy)
    assert len(np.concatenate(shuffled(connection, name, 11, **options))) == 3


@pytest.mark.parametrize("interface", ["server", "client"])
@pytest.mark.parametrize(
    ("dimension", "memory", "message"),
    [(20_000, "256MB", "must be below the 20000 features"), (10, "1MB", "above dbdp.pack_memory; set ")],
)
def test_an_impossible_projection_is_refused_before_the_charge(
    connection, database, schema, register, spent, interface, dimension, memory, message
):
    connection.execute("create table t as select array_fill(0::float8, array[20000]) x, 1 y from generate_series(1, 9)")
    name = register("t", features={"x": {"length": 20_000, "norm": 1}})
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    options = {"algorithm": "bolt_on", "batch_size": 3, "projection_dimension": dimension, "projection_seed": 1}
    with pytest.raises((psycopg.Error, ValueError), match=message):
        if interface == "server":
            arguments = ", ".join(f"{key} => {value!r}" for key, value in options.items())
            connection.execute(f"select dbdp.dp_logreg(%s, epsilon => 1, {arguments})", (name,))
        else:
            database.train(name, Request(epsilon=1.0, **options))
    assert spent(name) == (0, 0)


def test_a_key_is_in_no_message(connection, numbered):
    key = fresh_key()
    for options in ({"key": key + "zz"}, {"key": key, "first": 9, "last": 3}, {"key": key, "last": ROWS + 1}):
        with pytest.raises(psycopg.Error) as error:
            shuffled(connection, numbered, **options)
        assert key not in str(error.value) + str(error.value.diag.context)


def test_a_table_that_grew_is_refused(connection, numbered, schema):
    connection.execute(f"insert into {schema}.numbered values (1, 1)")
    with pytest.raises(psycopg.Error, match="had 3001 rows while it was read"):
        shuffled(connection, numbered, key=fresh_key(), last=5)


def test_no_temporary_table_stays(connection, schema, register):
    connection.execute("create table r as select i, i % 2 y from generate_series(0, 39999) i")
    connection.execute("set dbdp.pack_memory = '1MB'")
    name = register("r", features={"i": {"bounds": [0, 40_000]}}, intercept=False)
    with connection.transaction():
        connection.execute("create temporary table packed (block_no int8, block bytea)")
        options = json.dumps({"key": fresh_key()})
        connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, options))
        left = "select relname from pg_class where relpersistence = 't' and relkind = 'r'"
        assert connection.execute(left).fetchall() == [("packed",)]
