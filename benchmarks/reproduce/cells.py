"""The cells of the experiments: one training each, named by its content, so that figures share them.

Every result is a file of its own, so that an interrupted run goes on where it was.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Measured = dict[str, Any]  # numbers, and of a trace lists of numbers


@dataclass(frozen=True)
class Cell:
    """One training: ε is None without privacy; options are JSON with sorted keys."""

    dataset: str
    loss: str
    method: str
    epsilon: float | None
    delta: float
    options: str = "{}"
    repeat: int = 0

    @property
    def file(self) -> str:
        """Return the name of the file of its result: readable, with a hash of all of the cell."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]
        shown = f"{self.dataset}-{self.loss}-{self.method}-{self.epsilon}-{self.repeat}"
        return "".join(each if each.isalnum() or each in "-._" else "_" for each in shown) + f"-{digest}.json"


@dataclass(frozen=True)
class Result:
    """What a cell measured, or its error; with the machine's load (1 minute) when it began."""

    cell: Cell
    seconds: float
    figures: Measured = field(default_factory=dict)
    error: str = ""
    load: float = 0.0


class Store:
    """The folder of the results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, result: Result) -> None:
        """Write a result, at once or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / result.cell.file
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(asdict(result)) + "\n", encoding="utf-8")
        fresh.replace(path)

    def read(self, cell: Cell) -> Result | None:
        """Return the result of a cell, None if there is none or its file is not readable."""
        path = self.folder / cell.file
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return Result(Cell(**data.pop("cell")), **data)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def done(self, cells: Iterable[Cell]) -> list[Result]:
        """Return the results of these cells that are there, without errors, in order."""
        found = (self.read(cell) for cell in dict.fromkeys(cells))
        return [result for result in found if result is not None and not result.error]

    def failed(self, cells: Iterable[Cell]) -> list[Result]:
        """Return the results of these cells that are errors."""
        found = (self.read(cell) for cell in dict.fromkeys(cells))
        return [result for result in found if result is not None and result.error]

    def remaining(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells without a result, each once; those that failed are tried again."""
        every = list(dict.fromkeys(cells))
        done = {result.cell for result in self.done(every)}
        return [cell for cell in every if cell not in done]


def measured(cell: Cell, measure: Callable[[Cell], Measured]) -> Result:
    """Run a cell; an error is a result too, so that the others are still measured."""
    start, load = time.perf_counter(), os.getloadavg()[0]
    try:
        figures, error = measure(cell), ""
    except Exception as problem:
        figures, error = {}, f"{type(problem).__name__}: {problem}"
    return Result(cell, time.perf_counter() - start, figures, error, round(load, 2))
