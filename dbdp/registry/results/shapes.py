"""Shapes of a linear or additive model: how much each value of a column adds to the score, with bands of the noise.

All of it is post-processing of a released model and of the standard errors in its receipt. Shapes: coefficients
(outputs, features), intercepts (outputs,), errors one for each feature and one for the intercept.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from dbdp.checks import is_number
from dbdp.learning.rows.features import ABSENT, Numeric
from dbdp.learning.rows.pairs import written
from dbdp.registry.declarations import Declaration
from dbdp.registry.results.column_units import centred

WIDTH = 1.96  # standard deviations of normal noise, within which 95 % of it is
BENDS = 8  # parts of a line on a scale that is not linear
INTERCEPT = "(intercept)"
_EVEN = 1e-3  # relative difference of steps that count as equal


@dataclass(frozen=True)
class Value:
    """A value of a column: a number x, a category, or neither: any value that has no coordinate."""

    x: float | None
    category: str | None
    weights: tuple[float, ...]  # of the column's centred coefficients, which add up to the contribution

    @property
    def is_outside(self) -> bool:
        """Whether it is any value that has no coordinate."""
        return self.x is None and self.category is None


@dataclass(frozen=True)
class ShapedColumn:
    """A column or a pair of columns, and the values at which its shape is listed."""

    name: str
    values: tuple[Value, ...]
    middle: float | None = None  # of a line: the position at which it contributes 0

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.values[0].weights)


def shapes(
    declaration: Declaration, coefficients: np.ndarray, intercepts: np.ndarray, errors: Sequence[float | None]
) -> list[dict[str, Any]]:
    """Return the contribution of each value of each column to the score, with its pointwise band.

    The score of a row is the sum of its contributions and of the intercept, the last entry of each class; with the
    encoding `unit`, this sum is then divided by the norm of the row. Contributions have the mean 0 over a column's
    categories, bins or knots, and a line is 0 in the middle of its scale.

    A band holds at least 95 % of the noise that `errors` count at its value, if that is normal: they are upper limits
    of the deviations of `centred` coefficients and intercepts, and the deviation of a sum is at most the sum of those
    of its terms. It is None where an error is not known. Coefficients and intercepts are results of `in_column_units`.
    """
    columns = columns_of(declaration)
    shown, lasts = centred(declaration, coefficients, intercepts)
    deviations = np.array([math.nan if error is None else error for error in errors], float)
    labels = declaration.classes if declaration.kind == "classes" else [None]
    return [
        {"class": label} | entry
        for label, raw, own, last in zip(labels, coefficients, shown, lasts.tolist(), strict=True)
        for entry in _of_one(columns, raw, own, last, deviations)
    ]


def _of_one(
    columns: list[ShapedColumn], raw: np.ndarray, shown: np.ndarray, intercept: float, deviations: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yield the contributions of one model, and its intercept, which has those of lines in their middles."""
    end, deviation = 0, float(deviations[-1])
    for column in columns:
        start, end = end, end + column.width
        for value in column.values:
            if value.is_outside:  # it lacks the mean that `centred` has moved to the intercept
                numbers = float(shown[start] - raw[start]), math.nan
            else:
                weights = np.array(value.weights)
                numbers = float(weights @ shown[start:end]), float(np.abs(weights) @ deviations[start:end])
            yield _entry(column.name, value.x, value.category, *numbers)
        if column.middle is not None:
            intercept, deviation = intercept + float(shown[start]) * column.middle, math.nan
    yield _entry(INTERCEPT, None, None, intercept, deviation)


def _entry(name: str, x: float | None, category: str | None, contribution: float, deviation: float) -> dict[str, Any]:
    width = None if math.isnan(deviation) else WIDTH * deviation
    return {
        "column_name": name,
        "x": x,
        "category": category,
        "contribution": contribution,
        "lower": None if width is None else contribution - width,
        "upper": None if width is None else contribution + width,
    }


def errors_of_each(entries: Mapping[str, Any], features: int) -> Sequence[float | None]:
    """Return the standard errors of coefficients and intercept in a receipt, which a client may have written."""
    listed, last = entries.get("standard_errors"), entries.get("intercept_standard_error")
    if not isinstance(listed, list) or len(listed) != features or not all(map(is_number, listed)):
        listed = [None] * features
    return [*listed, last if is_number(last) else None]


def columns_of(declaration: Declaration) -> list[ShapedColumn]:
    """Return the columns of a declaration, then its pairs, in the order of their coordinates."""
    has_curves = any(each.knots for each in declaration.numeric)
    numbers = [_number(each, has_curves=has_curves) for each in declaration.numeric]
    categories = [_exclusive(each.column, each.values) for each in declaration.categorical]
    named = zip(declaration.pairs, declaration.products, strict=True)
    return numbers + categories + [_exclusive(written([names]), pair.names) for names, pair in named]


def _exclusive(name: str, categories: Sequence[str]) -> ShapedColumn:
    """Return a column of categories, or a pair of its cells, and what has none of them."""
    units = np.eye(len(categories)).tolist()
    listed = [Value(None, category, tuple(unit)) for category, unit in zip(categories, units, strict=True)]
    return ShapedColumn(name, (*listed, Value(None, None, (0.0,) * len(categories))))


def _number(feature: Numeric, *, has_curves: bool) -> ShapedColumn:
    """Return a number at its knots, its bins or the ends of its line, and NULL if it has a coordinate.

    In a model with curves, a number with one coordinate and bounds of 0 and 1 is two categories.
    """
    if feature.knots or feature.bins:
        own, middle = _of_shared(feature), None
    else:
        own, middle = _of_line(feature, is_flag=has_curves and feature.is_flag)
    if not feature.indicator or feature.missing is None:
        return ShapedColumn(feature.column, tuple(own), middle)
    padded = [replace(value, weights=(*value.weights, 0.0)) for value in own]
    at_null = _weights(feature, feature.position(feature.missing), middle)
    return ShapedColumn(feature.column, (*padded, Value(None, ABSENT, (*at_null, 1.0))), middle)


def _of_shared(feature: Numeric) -> list[Value]:
    """Return the knots of a curve, or the bins."""
    units = map(tuple, np.eye(feature.knots or feature.bins).tolist())
    if feature.knots:
        return [Value(x, None, unit) for x, unit in zip(feature.values_at_knots, units, strict=True)]
    names = (name.removeprefix(f"{feature.column}=") for name in feature.bin_names)
    return [Value(None, name, unit) for name, unit in zip(names, units, strict=True)]


def _of_line(feature: Numeric, *, is_flag: bool) -> tuple[list[Value], float]:
    """Return the bounds of a line, with places between them if its scale bends it, and the position of its middle."""
    parts = 1 if feature.bend is None else BENDS
    placed = replace(feature, knots=parts + 1)
    middle = sum(feature.ends) / 2
    values = [
        Value(None if is_flag else x, f"{x:g}" if is_flag else None, (position - middle,))
        for x, position in zip(placed.values_at_knots, placed.positions_of_knots, strict=True)
    ]
    return values, middle


def _weights(feature: Numeric, position: float, middle: float | None) -> tuple[float, ...]:
    """Return the weights of a number at a position on its scale."""
    if middle is not None:
        return (position - middle,)
    if feature.bins:
        edges = [feature.position(edge) for edge in feature.edges]
        return tuple(float(place == bisect_right(edges, position)) for place in range(feature.bins))
    knots = feature.positions_of_knots
    return tuple(float(np.interp(position, knots, unit)) for unit in np.eye(feature.knots))


def importance(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the spread of each column's contributions, with a band, the largest first, from `shapes`.

    It is the standard deviation of a column's contribution where each category, or bin, is as frequent as each other,
    and numbers are evenly spread on their scale from bound to bound: the rows decide nothing about it.

    A band holds at least 95 % of the noise. Proof. The spread is a seminorm of the contributions: noise e moves it by
    at most √Q, with Q the mean of e² in the same sense. Q is a quadratic form of normal numbers, of the mean
    s² ≤ the mean of their variances; beyond 1.54·s² none has a longer tail than s² times a chi-square of one degree
    (Székely and Bakirov 2003), whose quantile at 95 % is 1.96². ∎
    """
    found = []
    for (label, name), group in groupby(rows, key=lambda row: (row["class"], row["column_name"])):
        listed = [row for row in group if row["x"] is not None or row["category"] is not None]
        if listed:  # but not the intercept
            found.append({"class": label, "column_name": name} | _spread(listed))
    return sorted(found, key=lambda row: -row["importance"])


def _spread(listed: list[Mapping[str, Any]]) -> dict[str, Any]:
    on_curve = [row for row in listed if row["x"] is not None]
    values = np.array([row["contribution"] for row in on_curve or listed])
    mean = (values[:-1] + values[1:]).mean() / 2 if on_curve else values.mean()
    square = _square_of_curve if on_curve else _square_of_each
    spread, lower, upper = math.sqrt(square(values - mean)), None, None
    if all(row["upper"] is not None for row in on_curve or listed):
        width = math.sqrt(square(np.array([row["upper"] for row in on_curve or listed]) - values))
        lower, upper = max(0.0, spread - width), spread + width
    return {"importance": spread, "lower": lower, "upper": upper}


def places_of(numbers: Sequence[float]) -> list[float]:
    """Return where the knots of a curve are drawn: at their numbers, or evenly if these are even on another scale."""
    steps = np.diff(numbers)
    is_even = steps.max() <= steps.min() * (1 + _EVEN)
    return [float(number) for number in (numbers if is_even else range(len(numbers)))]


def _square_of_each(values: np.ndarray) -> float:
    return float(np.mean(np.square(values)))


def _square_of_curve(values: np.ndarray) -> float:
    """Return the mean square of a curve with these values at its knots, and straight between them."""
    before, after = values[:-1], values[1:]
    return float(np.mean(np.square(before) + before * after + np.square(after)) / 3)
