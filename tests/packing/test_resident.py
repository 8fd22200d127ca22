"""Packed rows that a backend holds: what refers to them, who reaches them, and when they go."""

import json
import os
import secrets
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from servers import stopping_once_charged

from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.estimators.linear import LogisticRegression
from dbdp.learning.losses import Logistic
from dbdp.learning.rows import blocks
from dbdp.learning.schedules import Constant
from dbdp.learning.state import State
from dbdp.packing import resident
from dbdp.packing.record_store import RecordFile, RecordsInMemory

ROWS, FEATURES = 60_000, 3
Refer = Callable[[int, int], bytes]
EPOCH = "select dbdp_internal.sgd_epoch(block, %s order by block_no) from pg_temp.{}"
# Bytes that this backend holds, and the references of the last table that it filled.
HELD = """
create function pg_temp.held() returns int8 language plpython3u as
$$ from dbdp.packing import resident; return resident.size() $$"""
# How many files without a name this backend has open, but those of relations that were dropped.
FILES = """
create function pg_temp.files() returns int8 language plpython3u as $$
import os, re
opened = []
for number in os.listdir("/proc/self/fd"):
    try:
        opened.append(os.readlink(f"/proc/self/fd/{number}"))
    except OSError:
        pass
return sum(re.search(r"/(#\\d+|tmp\\w+) \\(deleted\\)$", each) is not None for each in opened) $$"""


@pytest.fixture
def name(connection: psycopg.Connection, make_table, register) -> str:
    """A dataset of more rows than one block has; the session can tell how many bytes it holds."""
    random = np.random.default_rng(8)
    make_table("held_rows", random.normal(size=(ROWS, FEATURES)), random.choice([-1.0, 1.0], ROWS))
    connection.execute("select dbdp_internal.forget_blocks('pg_temp.referring')")
    connection.execute(HELD)
    connection.execute(FILES)
    return register("held_rows")


def bytes_held(connection: psycopg.Connection) -> int:
    return connection.execute("select pg_temp.held()").fetchone()[0]


def fill(connection: psycopg.Connection, name: str, table: str, **options: Any) -> list[bytes]:
    """Pack a dataset to a temporary table; return its blocks."""
    connection.execute(f"create temporary table if not exists {table} (block_no int8, block bytea); truncate {table}")
    sql = "select dbdp_internal.shuffle(%s, %s, %s::json)"
    connection.execute(sql, (name, f"pg_temp.{table}", json.dumps(options)))
    return [block for (block,) in connection.execute(f"select block from pg_temp.{table} order by block_no")]


def initial(**changed: Any) -> bytes:
    how = {"batch_size": 7, "regularisation": 0.1, "dimension": FEATURES + 1} | changed
    return State.initial(loss=Logistic(), schedule=Constant(0.5), **how).encode()


@pytest.mark.parametrize("cuts", [[], [1, 20_000, 59_999]])
def test_an_epoch_over_held_rows_is_that_over_written_ones(connection, name, cuts):
    options = {"key": os.urandom(32).hex(), "cuts": cuts}
    written = fill(connection, name, "written", **options)
    referring = fill(connection, name, "referring", **options, held=True)
    assert (len(written) > 1, len(referring)) == (True, 1 + len(cuts))
    assert {len(block) for block in referring} == {36}
    assert bytes_held(connection) == sum(map(len, written))
    models = [connection.execute(EPOCH.format(table), (initial(),)).fetchone() for table in ("written", "referring")]
    assert models[0] == models[1] != (initial(),)


@pytest.mark.parametrize("memory", ["4MB", "3MB"])
def test_rows_stay_in_memory_where_they_fit_half_of_it(connection, name, memory):
    """60,000 rows of 32 bytes: 1.83 MiB."""
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    fits, here = memory == "4MB", files_of(connection)
    for table in ("one", "one", "other"):
        assert {len(block) for block in fill(connection, name, table, held=True)} == {36}
    assert bytes_held(connection) == (ROWS * 32 if fits else 0)
    assert files_of(connection) - here == (1 if fits else 2)  # the other one is one too many
    connection.execute("drop table one")
    fill(connection, name, "other", held=True)
    assert bytes_held(connection) == (ROWS * 32 if fits else 0)  # of the one that was dropped
    connection.execute("select dbdp_internal.forget_blocks('pg_temp.other')")
    assert bytes_held(connection) == 0
    assert files_of(connection) == here


def files_of(connection: psycopg.Connection) -> int:
    return connection.execute("select pg_temp.files()").fetchone()[0]


def forged(block: bytes) -> Iterator[bytes]:
    """References that are not as they were made."""
    magic, key, first, last = struct.unpack("<4s16sqq", block)
    for other in (secrets.token_bytes(16), bytes(16), key[::-1]):
        yield struct.pack("<4s16sqq", magic, other, first, last)
    for ends in ((-1, 1), (0, ROWS + 1), (5, 4), (ROWS, ROWS + 1), (-(2**63), 2**63 - 1), (0, 2**63 - 1)):
        yield struct.pack("<4s16sqq", magic, key, *ends)
    yield b"dbh2" + block[4:]
    yield block + bytes(4)
    yield block[:-5]


def test_a_reference_that_is_not_as_it_was_made_reaches_no_row(connection, name):
    [block, *_] = fill(connection, name, "referring", held=True)
    sql = "select dbdp_internal.sgd_transition(%s, %s, null)"
    connection.execute(sql, (initial(), block))  # the control
    for other in forged(block):
        with pytest.raises(psycopg.Error, match=r"does not hold|is not a multiple of"):
            connection.execute(sql, (initial(), other))
    for dimension in (FEATURES + 8, 1000):
        with pytest.raises(psycopg.Error, match="does not hold"):
            connection.execute(sql, (initial(dimension=dimension), block))


def test_a_reference_reaches_no_row_of_another_session(server_url, connection, name):
    """A reference reaches no row of another session nor once the rows are forgotten."""
    [block, *_] = fill(connection, name, "referring", held=True)
    sql = "select dbdp_internal.sgd_transition(%s, %s, null)"
    with psycopg.connect(server_url) as other, pytest.raises(psycopg.Error, match="does not hold"):
        other.execute(sql, (initial(), block))
    connection.execute("select dbdp_internal.forget_blocks('pg_temp.referring')")
    with pytest.raises(psycopg.Error, match="does not hold"):
        connection.execute(sql, (initial(), block))


TRAIN = "select from dbdp.dp_logreg(%s, epsilon => 1, algorithm => 'bolt_on', batch_size => 5000, epochs => %s)"


def from_sql(connection: psycopg.Connection, name: str, epochs: int) -> None:
    connection.execute(TRAIN, (name, epochs))


def from_python(connection: psycopg.Connection, name: str, epochs: int) -> None:
    LogisticRegression(epsilon=1.0, algorithm="bolt_on", batch_size=5000, epochs=epochs, progress=False).fit(
        connect(connection), name
    )


@pytest.mark.parametrize("train", [from_sql, from_python])
@pytest.mark.parametrize("ending", ["well", "cancelled"])
def test_no_row_is_held_after_a_training_or_a_cancel(server_url, connection, name, spent, train, ending):
    if ending == "well":
        train(connection, name, 2)
    else:
        cancelling = stopping_once_charged(server_url, connection.info.backend_pid, name)
        with cancelling, pytest.raises(Exception, match=r"cancel|charge"):
            train(connection, name, 100_000)
    assert bytes_held(connection) == 0
    left = connection.execute("select relname from pg_class where relpersistence = 't' and relname ~ 'dbdp'")
    assert left.fetchall() == []
    assert spent(name)[0] > 0


def test_no_row_is_held_after_an_error():
    """Also where the statement that frees them does not run, as after a second cancel."""
    with pytest.raises(KeyboardInterrupt), resident.forgotten():
        resident.hold("a", RecordsInMemory(np.zeros((4, 8), blocks.ELEMENT)))
        assert resident.size() == 4 * 8 * 4
        raise KeyboardInterrupt
    assert resident.size() == 0


@pytest.mark.parametrize("records", [0, 4])
def test_a_file_is_closed_when_it_is_forgotten(tmp_path, records):
    """Also if it is still empty, as after a cancel before the first record; it is not left to the collector."""
    file = RecordFile(str(tmp_path), 8)
    resident.hold("t", file)
    file.write(0, np.zeros((records, 8), np.uint8))
    assert len(file.read(0, records)) == records  # the control: it is open
    resident.forget("t")
    assert file._file.closed
