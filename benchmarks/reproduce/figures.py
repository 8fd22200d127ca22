"""What a figure is: panels of series over an axis, and so a list of cells."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.reproduce.cells import Cell

EPSILON, ROWS = "epsilon", "rows"  # axes that are no option of a training
NO_PRIVACY, CONSTANT = "no-privacy", "constant"
AUTO = "dbdp:auto"
COMMAND = 'make reproduce ARGS="--figure {}"'


@dataclass(frozen=True)
class Series:
    """A line: a method with options. What is `fixed` does not depend on the axis."""

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    epsilon: float | None = None  # other than the panel's
    delta: float | None = None
    fixed: bool = False
    full: bool = False  # only in the full run
    void: bool = False  # its claim of privacy is void

    @property
    def has_privacy(self) -> bool:
        """Return whether it depends on ε."""
        return self.method not in (NO_PRIVACY, CONSTANT)


@dataclass(frozen=True)
class Panel:
    """One picture of a figure."""

    title: str
    dataset: str
    axis: str
    values: tuple[float, ...]
    series: tuple[Series, ...]
    metric: str = "accuracy"
    loss: str = "logistic"
    epsilon: float = 1.0
    delta: float = 1e-8
    small: tuple[float, ...] = ()  # values of the small run; () for the same
    small_dataset: str = ""
    full: bool = False  # only in the full run

    def shown(self, full: bool) -> tuple[Series, ...]:
        """Return the series of a run."""
        return tuple(series for series in self.series if full or not series.full)

    def points(self, full: bool) -> tuple[float, ...]:
        """Return the values of the axis in a run."""
        return self.values if full or not self.small else self.small

    @property
    def every(self) -> tuple[float, ...]:
        """Return the values of the axis that some run measures."""
        return tuple(sorted({*self.values, *self.small}))

    def cell(self, series: Series, value: float, repeat: int, full: bool) -> Cell:
        """Return the training of a point."""
        dataset = self.dataset if full or not self.small_dataset else self.small_dataset
        epsilon = self.epsilon if series.epsilon is None else series.epsilon
        delta = self.delta if series.delta is None else series.delta
        options = dict(series.options)
        if self.axis == ROWS:
            dataset = f"{dataset}:rows={int(value)}"
        elif self.axis == EPSILON:
            epsilon = value
        elif not series.fixed:
            place(options, self.axis, value)
        text = json.dumps(options, sort_keys=True)
        if not series.has_privacy:
            return Cell(dataset, self.loss, series.method, None, 0.0, "{}", repeat)
        return Cell(dataset, self.loss, series.method, epsilon, delta, text, repeat)


def place(options: dict[str, Any], axis: str, value: float) -> None:
    """Set an option, or a setting of one algorithm by `settings.name`."""
    number = int(value) if float(value).is_integer() else value
    if axis.startswith("settings."):
        options["settings"] = dict(options.get("settings", {})) | {axis.removeprefix("settings."): number}
    else:
        options[axis] = number


@dataclass(frozen=True)
class Figure:
    """A figure of the page."""

    name: str
    title: str
    says: str  # what to see, and how it was measured
    panels: tuple[Panel, ...]
    repeats: int = 20  # of the full run, as in the papers; the small run has its own

    @property
    def command(self) -> str:
        """Return the command that makes it."""
        return COMMAND.format(self.name)

    def panels_of(self, full: bool) -> tuple[Panel, ...]:
        """Return the panels of a run."""
        return tuple(panel for panel in self.panels if full or not panel.full)

    def cells(self, full: bool, repeat: int, *, grid: bool = False) -> Iterator[Cell]:
        """Return the cells of one repeat; with `grid` at all values of the axes, whatever the run."""
        for panel in self.panels_of(full):
            for series in panel.shown(full):
                for value in panel.every if grid else panel.points(full):
                    yield panel.cell(series, value, repeat, full)


def planned(
    figures: Iterable[Figure], full: bool, repeats: int | None, small_repeats: int, *, grid: bool = False
) -> list[Cell]:
    """Return all cells, each once: every figure once, then all again, so that an early end has something of each.

    Within a repeat the cells of one table are together, since a table has to be copied into the database.
    """
    every = list(figures)
    most = repeats or (max((figure.repeats for figure in every), default=0) if full else small_repeats)
    cells: dict[Cell, None] = {}
    for repeat in range(most):
        wanted = [figure for figure in every if repeat < (repeats or (figure.repeats if full else small_repeats))]
        found = dict.fromkeys(cell for figure in wanted for cell in figure.cells(full, repeat, grid=grid))
        tables = list(dict.fromkeys(cell.dataset for cell in found))
        cells |= dict.fromkeys(sorted(found, key=lambda cell: tables.index(cell.dataset)))
    return list(cells)
