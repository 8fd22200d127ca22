"""The cells of the experiment: each result is a line of a file, so that an interrupted run goes on where it was."""

import json
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.accuracy.datasets import Split, load
from benchmarks.accuracy.methods import Method
from benchmarks.accuracy.scores import figures


@dataclass(frozen=True)
class Cell:
    """One training: ε is None for what has no privacy."""

    dataset: str
    method: str
    epsilon: float | None
    split: int


@dataclass(frozen=True)
class Result:
    """What a cell measured, or the error that it ended with."""

    cell: Cell
    seconds: float
    figures: dict[str, float] = field(default_factory=dict)
    error: str = ""


def planned(datasets: Iterable[str], methods: Iterable[Method], splits: int) -> list[Cell]:
    """Return every cell: all tables once, then all with the next split, so that an early end has something of each."""
    return [
        Cell(name, method.name, epsilon, split)
        for split in range(splits)
        for name in datasets
        for method in methods
        if method.suits(load(name))
        for epsilon in method.epsilons(load(name))
    ]


def read(path: Path) -> list[Result]:
    """Return the results of a file; a line that was cut off counts as not written."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    parsed = [json.loads(line) for line in lines if line.endswith("}\n")]
    return [Result(Cell(**line.pop("cell")), **line) for line in parsed]


def append(path: Path, result: Result) -> None:
    """Add a result as a line of its own, also behind a line that was cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    start = "\n" if text and not text.endswith("\n") else ""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{start}{json.dumps(asdict(result))}\n")


def remaining(cells: Iterable[Cell], results: Iterable[Result]) -> list[Cell]:
    """Return the cells without a result; those that failed are tried again."""
    done = {result.cell for result in results if not result.error}
    return [cell for cell in cells if cell not in done]


def seconds_left(cells: Iterable[Cell], results: list[Result]) -> float:
    """Return the seconds that cells take if each takes the median of its table and method, or else of all."""
    known: dict[tuple[str, str], list[float]] = {}
    for result in results:
        known.setdefault((result.cell.dataset, result.cell.method), []).append(result.seconds)
    other = statistics.median([result.seconds for result in results] or [0.0])
    return sum(statistics.median(known.get((cell.dataset, cell.method), [other])) for cell in cells)


def measured(cell: Cell, methods: Iterable[Method]) -> Result:
    """Run a cell; an error is a result too, so that the others are still measured."""
    method = next(method for method in methods if method.name == cell.method)
    split = Split.of(cell.dataset, cell.split)
    start = time.perf_counter()
    try:
        values, error = figures(split, method.evaluate(split, cell.epsilon)), ""
    except Exception as problem:
        values, error = {}, f"{type(problem).__name__}: {problem}"
    return Result(cell, time.perf_counter() - start, values, error)
