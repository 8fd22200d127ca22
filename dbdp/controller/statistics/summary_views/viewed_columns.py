"""The columns of a summary for a reader: the levels that rows are divided into, and numbers.

Shapes: a summary has C coordinates c. A level is a vector u, shape (C,), with ⟨u, c⟩ = 1 for its rows and 0 for others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dbdp.learning.rows.features import ASINH, CATEGORY, CENTRED, OUTSIDE, REQUIRED, Categorical, Numeric
from dbdp.registry.results.stored_summaries import StoredSummary

NULL, OTHER, ALL = "(null)", "(other)", "(all)"


@dataclass(frozen=True)
class Level:
    """A category, a class or a bin, and the rows that have it."""

    name: str
    vector: np.ndarray  # shape (C,)


@dataclass(frozen=True)
class Number:
    """A number t that is not NULL, in the units of its column origin + length·t."""

    vector: np.ndarray  # ⟨vector, c⟩ is t, and 0 for NULL; shape (C,)
    present: np.ndarray  # ⟨present, c⟩ is 1, and 0 for NULL that has a coordinate; shape (C,)
    origin: float
    length: float


@dataclass(frozen=True)
class ViewedColumn:
    """A column of a summary: its levels, or a number that has none."""

    name: str
    levels: tuple[Level, ...] = ()  # each row has one of them
    number: Number | None = None  # of a column without bins, on a linear scale
    coordinates: tuple[int, ...] = ()  # of which each row has exactly one, as 1
    flags: tuple[int, ...] = ()  # that are 0 or 1
    signs: tuple[int, ...] = ()  # that are -1 or 1
    remark: str = ""  # what NULL and values outside count as


def columns_of(summary: StoredSummary) -> dict[str, ViewedColumn]:
    """Return the columns by name, features first; raise ValueError if it has no means or a level's name is taken."""
    summary.check_means()
    units, place, columns = np.eye(len(summary.mean)), 0, {}
    declaration = summary.declaration
    for part in declaration.parts:
        columns[part.column] = (
            _number(summary, part, place, units)
            if isinstance(part, Numeric)
            else _category(summary, part, place, units)
        )
        place += part.width
    if declaration.vector:
        names = declaration.feature_names
        columns |= {name: _plain(summary, name, each, units) for each, name in enumerate(names)}
    columns[declaration.label] = _label(summary, units)
    return columns


def _category(summary: StoredSummary, part: Categorical, place: int, units: np.ndarray) -> ViewedColumn:
    if taken := {NULL, OTHER, ALL} & set(part.categories):
        raise ValueError(
            f"column {part.column!r} has a category {min(taken)!r}, which names other rows in views; redeclare it with "
            "another text for these rows"
        )
    names = [*part.categories, *[NULL] * (part.null == CATEGORY)]
    places = tuple(range(place, place + part.width))
    rest = units[summary.constant] - units[list(places)].sum(axis=0)
    levels = [Level(name, units[each]) for name, each in zip(names, places, strict=True)]
    remark = f"{OTHER} includes NULL" if part.null == OUTSIDE else _left_out(part.null)
    return ViewedColumn(part.column, (*levels, Level(OTHER, rest)), flags=places, remark=remark)


def _number(summary: StoredSummary, part: Numeric, place: int, units: np.ndarray) -> ViewedColumn:
    absent = units[place + part.width - 1] if part.indicator else np.zeros(len(units))
    flag = (place + part.width - 1,) if part.indicator else ()
    if part.bins:
        places = tuple(range(place, place + part.bins))
        levels = [Level(name, units[each]) for name, each in zip(_bins_of(part), places, strict=True)]
        if part.indicator and part.missing is not None:
            usual = int(np.searchsorted(part.edges, part.missing, side="right"))
            levels[usual] = Level(levels[usual].name, levels[usual].vector - absent)
            levels.append(Level(NULL, absent))
        return ViewedColumn(part.column, tuple(levels), None, places, places + flag, remark=_of_null(part))
    if part.scale == ASINH:
        remark = f"scale asinh: release a summary with bins of {part.column!r} to see it"
        return ViewedColumn(part.column, flags=flag, remark=remark)
    number = _present(summary, part, place, units, absent)
    remark = f"within [{part.lower:g}, {part.upper:g}]{_of_null(part, '; ')}"
    return ViewedColumn(part.column, (), number, flags=flag, remark=remark)


def _present(summary: StoredSummary, part: Numeric, place: int, units: np.ndarray, absent: np.ndarray) -> Number:
    """Return a number on a linear scale: its coordinate, or the knots, whose coordinates interpolate, less NULL's."""
    knots = np.array(part.positions_of_knots)
    origin, length = part.affine(CENTRED)
    vector = (knots - origin) / length @ units[place : place + part.knots] if part.knots else units[place]
    usual = 0.0 if part.missing is None else (part.position(part.missing) - origin) / length
    return Number(vector - usual * absent, units[summary.constant] - absent, origin, length)


def _bins_of(part: Numeric) -> Iterator[str]:
    return (name.removeprefix(f"{part.column}=") for name in part.bin_names)


def _of_null(part: Numeric, before: str = "") -> str:
    if part.indicator:
        return ""
    return before + (_left_out(REQUIRED) if part.missing is None else f"NULL counts as {part.missing:g}")


def _left_out(null: str) -> str:
    return "rows with NULL are left out" if null == REQUIRED else ""


def _plain(summary: StoredSummary, name: str, place: int, units: np.ndarray) -> ViewedColumn:
    """Return a number of one coordinate that is never NULL."""
    origin, length = (float(each[place]) for each in summary.units)
    return ViewedColumn(name, (), Number(units[place], units[summary.constant], origin, length))


def _label(summary: StoredSummary, units: np.ndarray) -> ViewedColumn:
    declaration, first = summary.declaration, summary.constant + 1
    if declaration.kind == "real" and not declaration.label_bins:
        return _plain(summary, declaration.label, first, units)
    places = tuple(range(first, first + declaration.outputs))
    if declaration.outputs > 1:
        binned = declaration.binned_label
        names = declaration.classes or tuple(_bins_of(binned) if binned else ())
        levels = [Level(name, units[each]) for name, each in zip(names, places, strict=True)]
        return ViewedColumn(declaration.label, tuple(levels), None, places, places)
    signs = declaration.positive or "", OTHER if declaration.negative is None else declaration.negative
    halves = (units[summary.constant] + sign * units[first] for sign in (1, -1))
    levels = [Level(name, half / 2) for name, half in zip(signs, halves, strict=True)]
    return ViewedColumn(declaration.label, tuple(levels), signs=places)
