"""Charts of a model's shapes: a curve with its band, or an interval for each category, on one scale for all columns."""

import math
from collections.abc import Sequence
from itertools import groupby

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
    short,
)
from dbdp.interfaces.web.views.rendering import number
from dbdp.registry.results.shapes import places_of
from dbdp.sessions.session import Row

MOST_COLUMNS, MOST_VALUES = 12, 12
_HEIGHT = 200.0
Scale = tuple[float, float]


def shapes(rows: Sequence[Row], ranked: Sequence[Row]) -> list[Chart]:
    """Return the charts of the most important columns of a model with one output, from `dbdp.shapes`."""
    listed = (row for row in rows if row["x"] is not None or row["category"] is not None)
    values = {name: list(group) for name, group in groupby(listed, key=lambda row: row["column_name"])}
    names = [row["column_name"] for row in ranked[:MOST_COLUMNS]]
    ends = [end for name in names for row in values[name] for end in _ends(row)]
    scale = min(0.0, *ends), max(0.0, *ends)
    return [_drawn(f"shape-{place}", name, values[name], scale) for place, name in enumerate(names)]


def _ends(row: Row) -> tuple[float, float]:
    """Return the ends of a band, or the contribution twice."""
    value = row["contribution"]
    return (value, value) if row["upper"] is None else (row["lower"], row["upper"])


def _drawn(identifier: str, column: str, values: list[Row], scale: Scale) -> Chart:
    curve = [row for row in values if row["x"] is not None]
    return _curve(identifier, column, curve, scale) if curve else _intervals(identifier, column, values, scale)


def _title(column: str, values: list[Row]) -> str:
    largest, least = (choose(values, key=lambda row: row["contribution"]) for choose in (max, min))
    at = [f"{number(row['contribution'])} at {_value(row)}" for row in (least, largest)]
    return f"What {column} adds to the score: from {at[0]} to {at[1]}; dbdp.shapes has the numbers."


def _value(row: Row) -> str:
    return str(row["category"]) if row["x"] is None else number(row["x"])


def _steps(least: float, most: float) -> list[float]:
    """Return 0, and 1, 2 or 5 times a power of ten on both sides of it, the largest that the scale has."""
    largest = max(-least, most)
    if not largest:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(largest))
    step = max(factor * power for factor in (1, 2, 5) if factor * power <= largest * (1 + 1e-9))
    return [value for value in (-step, 0.0, step) if least <= value <= most]


def _curve(identifier: str, column: str, values: list[Row], scale: Scale) -> Chart:
    """Return the chart of a curve; knots that are even on another scale are evenly placed."""
    numbers = [row["x"] for row in values]
    places = places_of(numbers)
    x = linear(places[0], places[-1], LEFT, WIDTH - RIGHT)
    y = linear(*scale, _HEIGHT - BOTTOM, TOP)
    marked = [0, len(numbers) // 3, 2 * len(numbers) // 3, len(numbers) - 1] if len(numbers) > 3 else [0, -1]
    ends = [_ends(row) for row in values]
    band = [(x(place), y(upper)) for place, (_, upper) in zip(places, ends, strict=True)]
    band += [(x(place), y(lower)) for place, (lower, _) in zip(places[::-1], ends[::-1], strict=True)]
    return Chart(
        identifier,
        _title(column, values),
        short(column),
        "adds to the score",
        [Tick(x(places[place]), number(numbers[place])) for place in marked],
        [Tick(y(value), number(value)) for value in _steps(*scale)],
        curve=points_of([(x(place), y(row["contribution"])) for place, row in zip(places, values, strict=True)]),
        band=points_of(band),
        guide=(LEFT, y(0.0), WIDTH - RIGHT, y(0.0)),
        height=_HEIGHT,
    )


def _intervals(identifier: str, column: str, values: list[Row], scale: Scale) -> Chart:
    """Return the chart of categories: of many those that add or take the most."""
    longest = sorted(values, key=lambda row: -abs(row["contribution"]))[:MOST_VALUES]
    shown = [row for row in values if row in longest]
    x = linear(*scale, NAMES, WIDTH - RIGHT)
    height = TOP + BOTTOM + ROW * len(shown)
    rows = [TOP + ROW * (place + 0.5) for place in range(len(shown))]
    few = "" if len(shown) == len(values) else f", {len(shown)} of {len(values)}"
    return Chart(
        identifier,
        _title(column, values),
        f"{short(column)}{few}: adds to the score",
        "",
        [Tick(x(value), number(value)) for value in _steps(*scale)],
        [Tick(y, short(str(row["category"]))) for y, row in zip(rows, shown, strict=True)],
        dots=[(x(row["contribution"]), y) for y, row in zip(rows, shown, strict=True)],
        bars=[(x(_ends(row)[0]), x(_ends(row)[1]), y) for y, row in zip(rows, shown, strict=True)],
        guide=(x(0.0), TOP, x(0.0), height - BOTTOM),
        height=height,
        left=NAMES,
    )
