"""What a shuffle packed, and how much memory it took."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from goodness import ALPHA
from scipy import stats

from dbdp.learning.rows import blocks

SCALED: dict[str, Any] = {"coding": {"encoding": "scaled"}}  # numbers from 0 to 1, of rows that keep their length


def shuffled(connection: psycopg.Connection, name: str, dimension: int = 1, **options: Any) -> list[np.ndarray]:
    """Return the packed blocks of a dataset, in their order."""
    with connection.transaction(force_rollback=True):
        connection.execute("create temporary table packed (block_no int8, block bytea)")
        connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, json.dumps(options)))
        rows = connection.execute("select block_no, block from packed order by block_no").fetchall()
    assert [number for number, _ in rows] == list(range(len(rows)))
    return [blocks.decode(block, dimension) for _, block in rows]


def multiset(rows: np.ndarray) -> Counter[bytes]:
    """Return how often each row occurs, shape of rows (n, stride)."""
    return Counter(row.tobytes() for row in rows + np.float32(0))  # adding 0 makes -0 a 0


def growth(connection: psycopg.Connection, name: str, memory: str, options: str, *, warming: str) -> int:
    """Return by how many bytes one shuffle raises the peak of a backend that has shuffled `warming` in 1 MB before."""
    connection.execute("create temporary table packed (block_no int8, block bytea)")
    connection.execute("set dbdp.pack_memory = '1MB'; set temp_buffers = '1MB'")
    connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, warming))
    connection.execute("truncate packed")
    pid = connection.info.backend_pid
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        pytest.skip("only root on the server's machine may reset a peak")
    before = _memory_of(pid)["VmRSS"]
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, options))
    return _memory_of(pid)["VmHWM"] - before


def _memory_of(pid: int) -> dict[str, int]:
    """Return resident and peak memory of a process, in bytes."""
    lines = re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {key: int(value) << 10 for key, value in lines}


def assert_places_are_even(
    connection: psycopg.Connection, register: Callable[..., str], order: Callable[[str, int], list[int]]
) -> None:
    """Each of 8 × 8 cells of (origin, place) has the same expectation, over three orders of 40,000 numbered rows."""
    count, cells = 40_000, np.zeros((8, 8))
    connection.execute(f"create table r as select i, i % 2 y from generate_series(0, {count - 1}) i")
    name = register("r", features={"i": {"bounds": [0, count]}}, intercept=False)
    for _ in range(3):
        found = order(name, count)
        assert sorted(found) == list(range(count))
        cells += np.histogram2d(found, np.arange(count), bins=8)[0]
    assert evenness(cells) > ALPHA
    cells[0, 0] *= 1.5
    assert evenness(cells) < ALPHA  # it would notice half as many again in one cell


def evenness(cells: np.ndarray) -> float:
    """The p-value of a table whose margins are fixed."""
    mean = cells.sum() / cells.size
    return float(stats.chi2.sf(((cells - mean) ** 2 / mean).sum(), (len(cells) - 1) ** 2))
