"""Means and spreads of the results, by point; as CSV."""

import csv
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reproduce.cells import Cell, Result
from benchmarks.reproduce.figures import Figure, Panel, Series

HEAD = (
    *("panel", "dataset", "loss", "metric", "series", "method", "options", "void", "epsilon", "delta"),
    *("axis", "value", "mean", "deviation", "repeats", "seconds", "load"),
)
Found = Mapping[Cell, Result]


@dataclass(frozen=True)
class Point:
    """Mean and standard deviation over the repeats at one value of an axis."""

    panel: Panel
    series: Series
    cell: Cell
    value: float
    mean: float
    deviation: float  # 0 for one repeat
    repeats: int
    seconds: float
    load: float

    @property
    def line(self) -> dict[str, Any]:
        """Return the line of the CSV."""
        cell, panel = self.cell, self.panel
        shown = (
            *(panel.title, cell.dataset, cell.loss, panel.metric, self.series.label, cell.method, cell.options),
            *(self.series.void, "" if cell.epsilon is None else cell.epsilon, cell.delta, panel.axis, self.value),
            *(f"{self.mean:.6g}", f"{self.deviation:.6g}", self.repeats, f"{self.seconds:.3g}", f"{self.load:.2g}"),
        )
        return dict(zip(HEAD, shown, strict=True))


def points(figure: Figure, found: Found, full: bool, repeats: int) -> list[Point]:
    """Return every point that has a result."""
    return [point for panel in figure.panels_of(full) for point in of_panel(panel, found, full, repeats)]


def of_panel(panel: Panel, found: Found, full: bool, repeats: int) -> list[Point]:
    """Return the points of a panel, where there is one with privacy: the others are the same everywhere."""
    every = []
    for series in panel.shown(full):
        for value in panel.every:
            cells = [panel.cell(series, value, repeat, full) for repeat in range(repeats)]
            results = [found[cell] for cell in cells if cell in found]
            every += of_results(panel, series, value, results)
    measured = {point.value for point in every if point.series.has_privacy and not point.series.fixed}
    return [point for point in every if point.value in measured]


def of_results(panel: Panel, series: Series, value: float, results: list[Result]) -> list[Point]:
    """Return the point of these results, if any has the panel's metric."""
    measured = [result for result in results if panel.metric in result.figures]
    if not measured:
        return []
    numbers = [float(result.figures[panel.metric]) for result in measured]
    spread = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    seconds = statistics.median(float(result.figures.get("training_seconds", math.nan)) for result in measured)
    load = statistics.fmean(result.load for result in measured)
    mean = statistics.fmean(numbers)
    return [Point(panel, series, measured[0].cell, value, mean, spread, len(numbers), seconds, load)]


def write_csv(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write lines with the names of the first one as head."""
    every = list(lines)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(every[0]) if every else HEAD)
        writer.writeheader()
        writer.writerows(every)
