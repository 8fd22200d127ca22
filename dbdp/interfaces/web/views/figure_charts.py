"""Charts and tables of released statistics: a bar for each value with the interval of its noise, and distributions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dbdp.interfaces.web.views.charts import (
    BOTTOM,
    LEFT,
    NAMES,
    RIGHT,
    ROW,
    TOP,
    WIDTH,
    Chart,
    Tick,
    linear,
    points_of,
    round_steps,
    short,
)
from dbdp.interfaces.web.views.rendering import number, percent
from dbdp.sessions.session import Row

MOST_COLUMNS, MOST_VALUES, MOST_LINES = 24, 40, 500  # of a page
GRID = [0.01, *(place / 20 for place in range(1, 20)), 0.99]  # quantiles of a drawn distribution
_THICK = 12.0  # of a bar
_HEIGHT = 200.0
Measured = tuple[str, float, float]  # name, value, and half the width of the 95 % interval of its noise


@dataclass(frozen=True)
class Listing:
    """Figures as a table shows them."""

    caption: str
    headings: list[str]
    lines: list[list[tuple[str, bool]]]  # cells, and whether each is a number
    left_out: int  # lines that are too many for a page


def listed(caption: str, rows: Sequence[Row]) -> Listing:
    """Return a table of figures, each with its ±, without columns that no row has."""
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)] if rows else []
    shown = [name for name in names if not _is_width(name)]
    lines = [[(_cell(row, name), not isinstance(row[name], str | list)) for name in shown] for row in rows[:MOST_LINES]]
    return Listing(caption, [name.replace("_", " ") for name in shown], lines, len(rows) - len(lines))


def _is_width(name: str) -> bool:
    return name == "plus_minus" or name.endswith("_noise")


def _cell(row: Row, name: str) -> str:
    value = row[name]
    width = row.get("plus_minus" if name == "value" and "figure" in row else f"{name}_noise")
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if value is None or isinstance(value, str):
        return value or "–"
    return f"{number(value)} ± {number(width)}" if width else number(value)


def columns(figures: Sequence[Row]) -> list[Chart]:
    """Return a chart of counts for each column with categories or bins, from the rows of a describe."""
    levels = [row for row in figures if row["value"] is not None]
    grouped = [(name, list(rows)) for name, rows in groupby(levels, key=lambda row: row["column_name"])]
    charts = (
        _intervals(f"column-{place}", name, [(row["value"], row["count"], row["count_noise"]) for row in rows])
        for place, (name, rows) in enumerate(grouped[:MOST_COLUMNS])
    )
    return [chart for chart in charts if chart]


def groups(figures: Sequence[Row]) -> list[Chart]:
    """Return a chart for each figure of a table: bars of counts, and the means on their range."""
    names = list(dict.fromkeys(row["figure"] for row in figures))[:MOST_COLUMNS]
    charts = (_intervals(f"figure-{place}", name, list(_cells(figures, name))) for place, name in enumerate(names))
    return [chart for chart in charts if chart]


def _cells(figures: Sequence[Row], name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the cells of a figure, without the totals beside them."""
    rows = [row for row in figures if row["figure"] == name]
    inner = [row for row in rows if "(all)" not in row["groups"]]
    for row in inner or rows:
        yield ", ".join(row["groups"]), row["value"], row["plus_minus"]


def _intervals(identifier: str, subject: str, cells: Sequence[tuple[str, Any, Any]]) -> Chart | None:
    """Return the chart of values with intervals: of many those that are the largest. None if noise hides all."""
    known: list[Measured] = [(name, value, half or 0.0) for name, value, half in cells if value is not None]
    if not known:
        return None
    is_filled = not subject.startswith("mean ")
    largest = sorted(range(len(known)), key=lambda place: -known[place][1])[:MOST_VALUES]
    drawn = [known[place] for place in sorted(largest)]
    ends = [end for _, value, half in drawn for end in (value - half, value + half)] + [0.0] * is_filled
    x = linear(min(ends), max(ends), NAMES, WIDTH - RIGHT)
    rows = [(TOP + ROW * (place + 0.5), *each) for place, each in enumerate(drawn)]
    few = "" if len(drawn) == len(known) else f", the largest {len(drawn)} of {len(known)}"
    return Chart(
        identifier,
        _title(subject, drawn),
        short(subject) + few,
        "",
        [Tick(x(value), number(value)) for value in round_steps(min(ends), max(ends))],
        [Tick(y, short(name)) for y, name, _, _ in rows],
        dots=[(x(value), y) for y, _, value, _ in rows],
        bars=[(x(value - half), x(value + half), y) for y, _, value, half in rows],
        fills=[_fill(x(0.0), x(value), y) for y, _, value, _ in rows] if is_filled else [],
        height=TOP + BOTTOM + ROW * len(rows),
        left=NAMES,
    )


def _fill(zero: float, end: float, y: float) -> tuple[float, float, float, float]:
    """Return the rectangle of a bar: left, top, width and height."""
    return round(min(zero, end), 2), y - _THICK / 2, round(abs(end - zero), 2), _THICK


def _title(subject: str, drawn: Sequence[Measured]) -> str:
    least, largest = (choose(drawn, key=lambda each: each[1]) for choose in (min, max))
    at = [f"{number(value)} ± {number(half)} at {name}" for name, value, half in (least, largest)]
    return f"Noisy values of {subject}: from {at[0]} to {at[1]}; a table has the numbers."


def distribution(identifier: str, column: str, quantiles: Sequence[Row]) -> Chart | None:
    """Return the chart of the part of the rows up to each number, with the band of its noise; None without figures."""
    known = [row for row in quantiles if row["value"] is not None]
    if len(known) < 2:
        return None
    inner = known[1:-1] or known  # the ends of the outermost intervals may be the bounds
    ends = min(known[0]["value"], *(r["lower"] for r in inner)), max(known[-1]["value"], *(r["upper"] for r in inner))
    x, y = linear(*ends, LEFT, WIDTH - RIGHT), linear(0.0, 1.0, _HEIGHT - BOTTOM, TOP)
    band = [(x(max(row["lower"], ends[0])), y(row["quantile"])) for row in known]
    band += [(x(min(row["upper"], ends[1])), y(row["quantile"])) for row in reversed(known)]
    middle = min(known, key=lambda row: abs(row["quantile"] - 0.5))
    return Chart(
        identifier,
        f"Distribution of {column}: {percent(middle['quantile'])} of the rows are at or below "
        f"{number(middle['value'])}, by the noise between {number(middle['lower'])} and {number(middle['upper'])}.",
        short(column),
        "rows up to it",
        [Tick(x(value), number(value)) for value in round_steps(*ends)],
        [Tick(y(share), percent(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        curve=points_of([(x(row["value"]), y(row["quantile"])) for row in known]),
        band=points_of(band),
        height=_HEIGHT,
    )
