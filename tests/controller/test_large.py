"""Large tables in bounded memory: of ten times the memory, and of a thousand features."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from dbdp.algorithms import Request
from dbdp.controller import requests
from dbdp.learning.rows import blocks

pytestmark = pytest.mark.slow

ROWS, FEATURES = 300_000, 54
MEMORY_MB = 6


def private_peak_mb(pid: int) -> float:
    """Peak memory of a process without what it shares, in MB."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    return (int(status["VmHWM"].split()[0]) - int(status["RssShmem"].split()[0])) / 1024


@pytest.fixture
def fresh(server_url: str) -> Iterator[psycopg.Connection]:
    """A session whose peak of memory is of this test alone."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def large(connection: psycopg.Connection, schema: str, register: Callable[..., str]) -> str:
    """A registered table of 300,000 rows whose first feature numbers them."""
    connection.execute(
        f"create table large as select array_prepend(i::float8, array_fill(1.0::float8, array[{FEATURES - 1}])) as x, "
        f"1 as y from generate_series(1, {ROWS}) as i"
    )
    features = {"x": {"length": FEATURES, "norm": 1e6}}
    return register("large", negative="0", features=features)


def test_a_table_of_ten_times_the_memory_is_permuted(fresh, large):
    packed_mb = ROWS * blocks.stride_of(FEATURES + 1) * 4 / 2**20
    assert packed_mb > 10 * MEMORY_MB
    fresh.execute(f"set dbdp.pack_memory = '{MEMORY_MB}MB'")
    fresh.execute("create temporary table packed (block_no int8, block bytea)")
    fresh.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed')", (large,))
    assert private_peak_mb(fresh.info.backend_pid) < 64 + 2 * MEMORY_MB  # an interpreter with NumPy, and packing
    fetched = fresh.execute("select block from packed order by block_no").fetchall()
    rows = np.concatenate([blocks.decode(block, FEATURES + 1) for (block,) in fetched])
    numbers = np.rint(rows[:, 0].astype(np.float64) / rows[:, 1]).astype(int)  # rows have length 1: the second was 1
    assert sorted(numbers) == list(range(1, ROWS + 1))
    moved = np.corrcoef(np.arange(ROWS), numbers)[0, 1]
    assert abs(moved) < 6.1 / np.sqrt(ROWS)  # six sigma: the order tells nothing of the old one


@pytest.fixture
def wide(connection: psycopg.Connection, schema: str, register: Callable[..., str]) -> str:
    """A registered table of 20,000 rows of a thousand features."""
    connection.execute(
        "create table wide as select array(select sin(i::float8 * j) / 32 from generate_series(1, 1000) as j) as x, "
        "i % 2 as y from generate_series(1, 20000) as i"
    )
    return register("wide", negative="0", features={"x": {"length": 1000, "norm": 1}})


def test_a_thousand_features_fit_the_default_memory(fresh, wide):
    train = f"select algorithm from dbdp.dp_logreg('{wide}', epsilon => 4, delta => 1e-6)"
    assert fresh.execute(train).fetchone() == ("preconditioned_gd",)
    assert private_peak_mb(fresh.info.backend_pid) < 64 + 256  # an interpreter with NumPy, and dbdp.pack_memory


def test_a_training_on_a_thousand_features_reports_each_pass(database, wide):
    passes = []
    request = Request(4.0, 1e-6, algorithm="preconditioned_gd")
    requests.train(database._session, wide, request, lambda *part: passes.append(part))
    assert passes == [("pass", done, 18) for done in range(2, 19)]
