"""The tables of the scale benchmark, and a training in the server on one of them."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg

from benchmarks import ours, server
from benchmarks.harness import backend_memory, timed
from benchmarks.tables import Table


@dataclass(frozen=True)
class Cell:
    """The size of a table."""

    rows: int
    features: int


@dataclass(frozen=True)
class Result:
    """What one run of a method took.

    Attributes
    ----------
    seconds, processor_seconds : float
        By the clock, and of the processors: of the method's process and of the server's.
    peak_mb : float
        The most memory of its own that the method's process had: of dbdp the server's, without what is shared.
    """

    method: str
    rows: int
    features: int
    seconds: float
    processor_seconds: float
    peak_mb: float

    def shown(self) -> str:
        """Return a line for the terminal."""
        return (
            f"{self.rows:>12,} × {self.features:<5} {self.method:<13} {self.seconds:8.2f} s "
            f"(processor {self.processor_seconds:8.2f} s) {self.peak_mb:8.0f} MB"
        )


def planned(rows: Sequence[int], features: Sequence[int], numbers: int) -> list[Cell]:
    """Return the tables, each of at most so many numbers: those above it have fewer rows."""
    cells = [Cell(min(count, max(1, numbers // width)), width) for width in features for count in rows]
    return list(dict.fromkeys(cells))


def measured_in_server(cell: Cell, table: Table, memory: str, work_mem: str) -> Result:
    """Train by the default in a new session with little memory."""
    with server.connect() as fresh:
        fresh.execute("select set_config('dbdp.pack_memory', %s, false)", (memory,))
        fresh.execute("select set_config('work_mem', %s, false)", (work_mem,))
        ours.smallest_call(fresh)  # loads what every session loads once
        seconds, processor = [], []

        def train() -> None:
            processor.append(processor_seconds(fresh, lambda: seconds.append(ours.default_run(fresh, table))))

        used = backend_memory(fresh, train)
    return Result("dbdp", cell.rows, cell.features, seconds[0], processor[0], used.peak - used.shared)


def processor_seconds(connection: psycopg.Connection, action: Callable[[], object]) -> float:
    """Return the processor time of an action in this process, and in a connection's backend on this machine."""
    status = partial(_spent, Path("/proc") / str(connection.info.backend_pid) / "stat")
    before = status() + time.process_time()
    timed(action)
    return status() + time.process_time() - before


def _spent(status: Path) -> float:
    """Return the processor time of a process: its own, and the kernel's for it."""
    fields = status.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
