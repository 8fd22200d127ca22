"""Alternating, repeated timing of several sides, with the spread of their ratios."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from rich.table import Table as RichTable

Side = Callable[[], float]


@dataclass(frozen=True)
class Spread:
    """The median of repeated figures between their quartiles."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, figures: list[float]) -> "Spread":
        """Summarise at least two figures."""
        lower, median, upper = statistics.quantiles(figures, n=4, method="inclusive")
        return cls(median=median, lower=lower, upper=upper)

    def less(self, amount: float) -> "Spread":
        """Return the same figures, each lower by an amount."""
        return Spread(self.median - amount, self.lower - amount, self.upper - amount)


@dataclass(frozen=True)
class Samples:
    """Seconds of each side, in the order of the alternations."""

    seconds: dict[str, list[float]]

    def spread(self, side: str) -> Spread:
        """Return the time of a side."""
        return Spread.of(self.seconds[side])

    def ratio(self, ours: str, other: str) -> Spread:
        """Return the ratio of our side to the other side, alternation by alternation."""
        pairs = zip(self.seconds[ours], self.seconds[other], strict=True)
        return Spread.of([mine / theirs for mine, theirs in pairs])


def alternate(sides: dict[str, Side], repeats: int, settle: Callable[[], None] = lambda: None) -> Samples:
    """Time every side in turn, back and forth, after one round that is not counted.

    `settle` runs before each timing, outside the clock.
    """
    if repeats < 2:
        raise ValueError(f"repeats is {repeats}: a spread needs at least 2")
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        forth = list(sides)
        for name in forth if turn % 2 else reversed(forth):
            settle()
            took = sides[name]()
            if turn > 0:
                seconds[name].append(took)
    return Samples(seconds)


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Memory:
    """Resident memory of a backend in MB: its highest, and its shared part at the end."""

    peak: float
    shared: float


def backend_memory(connection: psycopg.Connection, action: Callable[[], object]) -> Memory:
    """Return the peak memory of a connection's backend during an action, on the server's machine."""
    process = Path("/proc") / str(connection.info.backend_pid)
    reset_peak(process)
    action()
    return Memory(peak=status_mb(process, "VmHWM"), shared=status_mb(process, "RssShmem"))


def reset_peak(process: Path) -> None:
    """Lower the recorded peak to what is resident now, where the system lets us."""
    try:
        (process / "clear_refs").write_text("5")
    except PermissionError:
        return  # then the peak is that since the connection was opened


def status_mb(process: Path, field: str) -> float:
    """Return one size of a process, in MB."""
    for line in (process / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) / 1024
    raise LookupError(f"{process}/status has no {field}: this needs Linux 4.5 or newer")


def times_table(title: str, groups: dict[str, Samples]) -> RichTable:
    """Return a table of every side of every group with median and quartiles in milliseconds."""
    table = RichTable("what", "side", "median ms", "quartiles ms", title=title)
    for group, samples in groups.items():
        for side in samples.seconds:
            spread = samples.spread(side)
            quartiles = f"{spread.lower * 1e3:,.2f} – {spread.upper * 1e3:,.2f}"
            table.add_row(group, side, f"{spread.median * 1e3:,.2f}", quartiles)
    return table


def ratios_table(title: str, ratios: dict[str, Spread]) -> RichTable:
    """Return a table of every ratio with median and quartiles."""
    table = RichTable("ratio", "median", "quartiles", title=title)
    for name, spread in ratios.items():
        table.add_row(name, f"{spread.median:.3f}", f"{spread.lower:.3f} – {spread.upper:.3f}")
    return table


def write_json(path: Path, content: dict) -> None:
    """Write a report where a program can read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
