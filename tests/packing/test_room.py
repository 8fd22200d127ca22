"""Files of packed rows keep temp_file_limit and the disk's free space: before the charge, from public sizes."""

import json
import os
import re
import secrets
from types import SimpleNamespace
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dbdp.algorithms import Request
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.learning.rows import blocks
from dbdp.packing import room
from dbdp.privacy.shuffling import KeyedOrder, Section, section_rows

ROWS, COLUMNS = 3000, 12
# In this backend: the largest sum of the sizes of its nameless files since it was asked, and disks of another size.
WATCH = """
create function pg_temp.watch() returns void language plpython3u as $$
import os
from dbdp.packing import record_store
if "peak" not in GD:
    write = record_store.RecordFile.write
    def watched(self, *arguments):
        write(self, *arguments)
        GD["peak"] = max(GD["peak"], sum(os.fstat(each._file.fileno()).st_size for each in record_store._files))
    record_store.RecordFile.write = watched
GD["peak"] = 0
$$;
create function pg_temp.peak() returns int8 language plpython3u as $$ return GD["peak"] $$;
create function pg_temp.disk(free int8) returns void language plpython3u as $$
import os, types
real = GD.setdefault("statvfs", os.statvfs)
disk = types.SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=1 << 40)
os.statvfs = real if free is None else lambda folder: disk
$$;
create function pg_temp.without_limits(off bool) returns void language plpython3u as $$
from dbdp.packing import room
limits = GD.setdefault("limits", (room.check_limit, room.check_disk))
room.check_limit, room.check_disk = (lambda *_: None,) * 2 if off else limits
$$"""


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> str:
    columns = ", ".join(f"c{number} float8" for number in range(COLUMNS))
    values = ", ".join("random()" for _ in range(COLUMNS))
    connection.execute(f"create table wide ({columns}, y int, g text)")
    connection.execute(f"insert into wide select {values}, i % 2, chr(97 + i % 2) from generate_series(1, {ROWS}) as i")
    connection.execute(WATCH)
    yield f"{schema}.wide"
    connection.execute("select pg_temp.disk(null), pg_temp.without_limits(false)")


def registered(connection: psycopg.Connection, table: str, columns: int, capacity: int | None) -> str:
    """Register the table anew, by some of its columns; return the name."""
    connection.execute("select dbdp.drop_dataset(name) from dbdp.datasets_details where source = %s", (table,))
    name = f"d_{secrets.token_hex(4)}"
    features = json.dumps({f"c{number}": [0, 1] for number in range(columns)})
    connection.execute(
        "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s::json, 1000, 1e-3, mode => 'basic', "
        "capacity => %s::int8, public_columns => '{g}')",
        (name, table, features, capacity),
    )
    return name


SGD = "epsilon => .1, delta => 1e-6, algorithm => 'dp_sgd', epochs => 2"
BOLT_ON = "epsilon => .1, algorithm => 'bolt_on', epochs => 1"
CALLS = {
    "default": "select dbdp.dp_logreg(%s, epsilon => .1, delta => 1e-9)",
    "bolt_on": f"select dbdp.dp_logreg(%s, {BOLT_ON})",
    "shards in the server": f"select dbdp.dp_logreg(%s, {BOLT_ON}, shards => 2)",
    "dp_sgd": f"select dbdp.dp_logreg(%s, {SGD}, batch_size => 500)",
    "dp_sgd, large steps": f"select dbdp.dp_logreg(%s, {SGD}, batch_size => 2000)",
    "dp_agd": "select dbdp.dp_logreg(%s, epsilon => .1, delta => 1e-6, algorithm => 'dp_agd')",
    "class balance": "select dbdp.dp_class_balance(%s, epsilon => .1)",
    "summary": "select dbdp.dp_summarize(%s, epsilon => .1, delta => 1e-9)",
    "groups": "select dbdp.dp_train_groups(%s, 'g', array['a', 'b'], epsilon => .1, delta => 1e-9)",
}


def outcome(connection: psycopg.Connection, call: str, name: str) -> str | None:
    """The refusal of a call, or None; it is refused before the charge or not at all."""
    before = connection.execute("select count(*) from dbdp.ledger").fetchone()
    try:
        connection.execute(CALLS[call], (name,))
    except psycopg.Error as error:
        assert error.sqlstate == "DP001", error
        assert "after its charge" not in str(error)
        assert connection.execute("select count(*) from dbdp.ledger").fetchone() == before
        return error.diag.message_primary
    return None


SIZES = {
    "call": st.sampled_from(sorted(CALLS)),
    "columns": st.integers(1, COLUMNS),
    "capacity": st.integers(2600, 60_000),
}


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(memory=st.integers(1, 8), limit=st.sampled_from([-1, 0]) | st.integers(1, 12_000), used=st.booleans(), **SIZES)
@example(call="dp_sgd", columns=1, capacity=6554, memory=1, limit=0, used=False)
@example(call="dp_sgd, large steps", columns=12, capacity=60_000, memory=1, limit=8_000, used=False)
@example(call="groups", columns=1, capacity=2_600, memory=8, limit=0, used=False)
@pytest.mark.attack("file-room")
def test_a_call_keeps_the_limit_or_is_refused_before_its_charge(
    connection, table, call, columns, capacity, memory, limit, used
):
    """With `used` the session holds rows of another packing, so that its memory or its limit is used in part."""
    name = registered(connection, table, columns, capacity)
    connection.execute("select dbdp_internal.forget_blocks('pg_temp.before')")
    connection.execute(f"set dbdp.pack_memory = '{memory}MB'; set temp_file_limit = -1")
    if used:
        connection.execute("create temporary table if not exists before (block_no int8, block bytea); truncate before")
        connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.before', '{\"held\": true}')", (name,))
    connection.execute(f"set temp_file_limit = {limit}; select pg_temp.watch()")
    refusal = outcome(connection, call, name)
    peak = connection.execute("select pg_temp.peak()").fetchone()[0]
    packed = capacity * blocks.row_bytes(columns + 1)
    if refusal is not None:
        assert re.search(r"take files of up to [\d.]+ MB.* above temp_file_limit = \w+ of this session: ", refusal)
        assert 0 <= limit << 10 < 3 * (2 * packed + 8 * capacity) + capacity * 8 * (columns + 2)
        assert peak == 0
    else:
        assert limit < 0 or peak <= limit << 10
        assert peak <= 3 * (2 * packed + 8 * capacity) + capacity * 8 * (columns + 2)


@pytest.mark.parametrize("call", CALLS)
def test_a_limit_below_the_file_refuses_and_above_it_not(connection, table, call):
    name = registered(connection, table, 12, 20_000)  # 64 bytes a row
    refused = {}
    for memory, limit in (("1MB", "0"), ("1MB", "1MB"), ("1MB", "8MB"), ("64MB", "-1"), ("64MB", "8MB")):
        connection.execute(f"set dbdp.pack_memory = '{memory}'; set temp_file_limit = '{limit}'")
        connection.execute("select pg_temp.watch()")
        refused[memory, limit] = outcome(connection, call, name)
    peak = connection.execute("select pg_temp.peak()").fetchone()[0]
    assert all(map(refused.get, [("1MB", "0"), ("1MB", "1MB")]))
    assert not any(map(refused.get, [("1MB", "8MB"), ("64MB", "-1"), ("64MB", "8MB")]))
    assert (peak == 0) == (call != "groups")  # rows that fit the memory take no file; records of groups always do


def test_the_remedy_of_a_refusal_helps(connection, table):
    name = registered(connection, table, 12, 20_000)
    connection.execute("set dbdp.pack_memory = '1MB'; set temp_file_limit = '1MB'")
    refusal = outcome(connection, "default", name)
    connection.execute(re.search(r"set dbdp\.pack_memory = '\d+MB'", refusal)[0])
    assert outcome(connection, "default", name) is None


@pytest.mark.parametrize("call", ["default", "dp_sgd", "class balance", "groups"])
@pytest.mark.control("file-room")
def test_without_the_checks_the_file_is_above_the_limit(connection, table, call):
    """The control, and the attack as it was carried out: a limit of 0, a nameless file all the same."""
    name = registered(connection, table, 12, 20_000)
    connection.execute("set dbdp.pack_memory = '1MB'; set temp_file_limit = 0; select pg_temp.watch()")
    connection.execute("select pg_temp.without_limits(true)")
    assert outcome(connection, call, name) is None
    assert connection.execute("select pg_temp.peak()").fetchone()[0] > 1 << 20


@pytest.mark.attack("file-room")
def test_a_packing_called_directly_keeps_the_limit_too(connection, table):
    name = registered(connection, table, 12, 20_000)
    connection.execute("set dbdp.pack_memory = '1MB'; create temporary table filled (block_no int8, block bytea)")
    fill = "select dbdp_internal.shuffle(%s, 'pg_temp.filled', '{\"held\": true}')"
    for limit, refused in (("1MB", True), ("8MB", False), ("2MB", True)):  # the last one counts what is held
        connection.execute(f"set temp_file_limit = '{limit}'")
        if refused:
            with pytest.raises(psycopg.Error, match="above temp_file_limit"):
                connection.execute(fill, (name,))
        else:
            connection.execute(fill, (name,))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.attack("file-room")
def test_a_disk_without_room_refuses_before_the_charge(connection, table, call):
    name = registered(connection, table, 12, 20_000)
    connection.execute("set dbdp.pack_memory = '1MB'")
    spare = room.LARGEST_SPARE
    for free, refused in ((spare, True), (spare + (1 << 20), True), (spare + (64 << 20), False)):
        connection.execute("select pg_temp.disk(%s)", (free,))
        refusal = outcome(connection, call, name)
        assert (refusal is not None) == refused, free
        assert not refused or "the disk of temporary tables has room for 0 MB: make room there" in refusal
    connection.execute("set dbdp.pack_memory = '64MB'")
    connection.execute("select pg_temp.disk(0)")
    assert (outcome(connection, call, name) is None) == (call != "groups")


@pytest.mark.attack("file-room")
def test_a_capacity_beyond_every_disk_is_refused(connection, table):
    name = registered(connection, table, 12, 10**12)
    for call in ("default", "class balance", "summary", "groups"):
        refusal = outcome(connection, call, name)
        assert re.search(r"take files of up to \d{7,} MB, and the disk of temporary tables", refusal)
    assert connection.execute("select charged from dbdp.budget_details(%s)", (name,)).fetchone()[0] == 0


def test_the_same_words_whatever_the_rows_are(connection, table):
    """Neighbours of a dataset with a capacity get the same refusal, and the same file."""
    found = []
    for change in ("select", "delete from wide where c0 < 0.9", "truncate wide", "update wide set c0 = 'nan'"):
        connection.execute(change)
        name = registered(connection, table, 3, 20_000)
        for limit in ("0", "1MB"):
            connection.execute(f"set dbdp.pack_memory = '1MB'; set temp_file_limit = '{limit}'")
            found.append(outcome(connection, "default", name))
    assert len(set(found)) == 2
    assert None not in found


# --- from Python, in several sessions --------------------------------------------------------------------------------


def _tune(database: Database, name: str) -> Any:
    candidates = ({"regularisation": 0.1}, {"regularisation": 0.2})
    return database.tune(name, TuningRequest(Request(0.1, algorithm="bolt_on", epochs=1), candidates))


CLIENTS = {
    "train": lambda database, name: database.train(name, Request(0.1, delta=1e-9)),
    "dp_sgd": lambda database, name: database.train(name, Request(0.1, delta=1e-6, algorithm="dp_sgd", epochs=1)),
    "shards": lambda database, name: database.train(name, Request(0.1, algorithm="bolt_on", epochs=1, shards=2)),
    "tune": _tune,
}


@pytest.mark.parametrize("call", sorted(CLIENTS.keys() - {"shards"}))
def test_a_client_is_refused_before_its_charge(server_url, connection, table, call):
    name = registered(connection, table, 12, 60_000)
    with connect(server_url) as database:
        database.connection.execute("set dbdp.pack_memory = '1MB'; set temp_file_limit = '1MB'")
        with pytest.raises(ValueError, match="above temp_file_limit"):
            CLIENTS[call](database, name)
        assert database.history(name) == []
        database.connection.execute("set temp_file_limit = '32MB'")
        CLIENTS[call](database, name)  # the control
        assert len(database.history(name)) == 1


def test_the_limits_of_further_sessions_are_checked_too(server_url, connection, table, make_role):
    """A superuser's own session may have no limit, where the sessions that it opens have the role's."""
    name, role = registered(connection, table, 12, 60_000), make_role("limited")
    connection.execute(f"alter role {role} superuser login password 'of the tests alone'")
    connection.execute(f"alter role {role} set temp_file_limit = '1MB'")
    url = psycopg.conninfo.make_conninfo(server_url, user=role, password="of the tests alone")
    with connect(url) as database:
        database.connection.execute("set dbdp.pack_memory = '1MB'; set temp_file_limit = -1")
        CLIENTS["train"](database, name)
        with pytest.raises(ValueError, match="above temp_file_limit = 1MB"):
            CLIENTS["shards"](database, name)
        assert len(database.history(name)) == 1


# --- arithmetic ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**12), st.integers(1, 10**5), st.integers(20, 40))
def test_rows_take_a_file_unless_they_fit_half_of_the_memory(rows, dimension, bits):
    found, packed = room.file_bytes(rows, dimension, 1 << bits), rows * blocks.row_bytes(dimension)
    assert found == 0 or found >= 2 * packed
    assert (found == 0) == (2 * packed <= 1 << bits)


@given(st.integers(1, 300_000), st.data())
def test_a_section_has_no_more_rows_than_stated(count, data):
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first + 1, count))
    found = Section.of(KeyedOrder(secrets.token_bytes(32), count), first, last).rows
    assert last - first <= found <= section_rows(count, last - first) <= count


class Setting:
    """A session with settings."""

    def __init__(self, listed: str, limit: str = "-1") -> None:
        self.listed, self.limit = listed, limit

    def query(self, sql: str, *_: Any) -> list[dict[str, Any]]:
        if sql == room._LIMIT:
            return [{"setting": self.limit, "bytes": int(self.limit)}]
        named = {"pg_default": 1663, "fast": 7, 'Odd, "one': 8}
        return [{"oid": n, "name": each, "is_default": n == 1663, "listed": self.listed} for each, n in named.items()]


LISTS = {
    "": ["base"],
    "fast": ["pg_tblspc/7"],
    "FAST": ["pg_tblspc/7"],
    '"FAST"': ["base"],
    'fast, "Odd, ""one"': ["pg_tblspc/7", "pg_tblspc/8"],
    'gone, fast': ["pg_tblspc/7"],
    "gone": ["base"],
    '"", fast': ["base", "pg_tblspc/7"],
    "pg_default": ["base"],
}  # fmt: skip


@pytest.mark.parametrize("listed", LISTS)
def test_the_disk_is_that_of_temp_tablespaces(listed):
    assert room._folders(Setting(listed)) == LISTS[listed]


@pytest.mark.parametrize("listed", ["", "pg_default", '""'])
def test_the_server_makes_temporary_tables_where_it_is_expected(connection, listed):
    connection.execute("select set_config('temp_tablespaces', %s, false)", (listed,))
    connection.execute("create temporary table here ()")
    path = connection.execute("select pg_relation_filepath('here')").fetchone()[0]
    sql = room._TABLESPACES
    spaces = connection.execute(sql).fetchall()
    rows = [dict(zip(("oid", "name", "is_default", "listed"), space, strict=True)) for space in spaces]
    found = room._folders(SimpleNamespace(query=lambda *_: rows))
    assert [path.split("/")[0] if path.startswith("base") else os.path.dirname(path)] == found


BYTES = st.integers(0, 2**44)


@given(BYTES, st.integers(1, 2**46), st.integers(12, 16), BYTES, st.sampled_from([0.5, 1.0]))
def test_free_space_is_compared_in_steps(free, blocks_of_disk, bits, size, spare):
    size_of_disk = max(free, blocks_of_disk)
    disk = SimpleNamespace(f_bavail=free >> bits, f_frsize=1 << bits, f_blocks=size_of_disk >> bits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "statvfs", lambda folder: disk)
        left = free - spare * min(room.LARGEST_SPARE, size_of_disk / 16)
        try:
            room.check_disk("base", size, spare)
        except ValueError as error:
            shown = int(re.search(r"has room for (\d+) MB", str(error))[1]) << 20
            assert shown % room.STEP == 0
            assert size > left - room.STEP - (2 << bits)
            assert shown < size
        else:
            assert size <= max(0, left) + (2 << bits)


def test_a_limit_is_shown_as_it_is_set():
    with pytest.raises(ValueError, match=r"up to 1\.5 MB in addition to 0\.5 MB .* above temp_file_limit = 1048576 of"):
        room.check_limit(Setting("", "1048576"), 3 << 19, 1 << 19)
    room.check_limit(Setting("", "2097152"), 3 << 19, 1 << 19)
    room.check_limit(Setting("", "-1"), 1 << 60, 1)
    assert np.isclose(float(room._megabytes(3 << 19)), 1.5)
