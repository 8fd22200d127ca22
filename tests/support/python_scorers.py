"""Scorers in Python: the oracle of the compiled ones, with the same arguments and results."""

import bisect
import math
import operator
import struct
from collections.abc import Callable

from dbdp.registry.results.row_columns import Column, ColumnGroups, Crossing, Ending, number_of, values_of

_ARRAY_HEADER = struct.Struct("<5i")
_FLOAT4 = 700  # PostgreSQL's OID of the type
_PLAIN = Ending()
_NO_PAIRS = Crossing()
Scorer = Callable[[bytes], float | None]


def _ended(ending: Ending, decision: float, square: float) -> float:
    """Return the decision from the sum and the squared norm of the features."""
    if not math.isnan(ending.square):
        norm = math.sqrt(square + ending.square)
        decision = decision / norm if norm else 0.0 * decision
    return decision if math.isnan(decision) else min(max(decision, ending.least), ending.most)


class VectorScorer:
    """Computes intercept + ⟨weights, array⟩ from the bytes of a float8[] or float4[].

    It returns None for an array of another shape, with a null, or with a value that is not finite.
    """

    def __init__(self, weights: list[float], intercept: float, ending: Ending = _PLAIN) -> None:
        self._weights = weights
        self._intercept = intercept
        self._ending = ending

    def __call__(self, features: bytes) -> float | None:
        """Return the decision for an array, or None."""
        if len(features) < _ARRAY_HEADER.size:
            return None
        dimensions, nulls, element, length, _ = _ARRAY_HEADER.unpack_from(features)
        elements = struct.Struct(f"<{len(self._weights)}{'f' if element == _FLOAT4 else 'd'}")
        fits = dimensions == 1 and not nulls and length == len(self._weights)
        if not fits or len(features) != _ARRAY_HEADER.size + elements.size:
            return None
        values = elements.unpack_from(features, _ARRAY_HEADER.size)
        if not math.isnan(self._ending.square):
            return self._of_norm_one(values)
        decision = self._intercept + sum(map(operator.mul, self._weights, values))
        return _ended(self._ending, decision, 0.0) if math.isfinite(decision) else None

    def _of_norm_one(self, values: tuple[float, ...]) -> float | None:
        """Return the decision divided by the row's norm; its largest number is divided out first, so none overflows."""
        if not all(map(math.isfinite, values)):
            return None
        ending, largest = self._ending, max(map(abs, values))
        if ending.square:
            largest = max(largest, ending.norm_bound)
        if not largest:
            return 0.0
        shares = [value / largest for value in values]
        decision = self._intercept / largest + sum(map(operator.mul, self._weights, shares))
        length = math.hypot(*shares, math.sqrt(ending.square) * (ending.norm_bound / largest))
        return decision * (ending.norm_bound / length)


class RecordScorer:
    """Computes intercept + Σ contribution of each column from the binary form of a row (`record_send`).

    Columns are in the row's order. It returns None if a feature is null or not finite; numbers are clipped to their
    bounds.
    """

    def __init__(
        self, columns: list[Column], intercept: float, ending: Ending = _PLAIN, crossing: Crossing = _NO_PAIRS
    ) -> None:
        self._columns = columns
        self._intercept = intercept
        self._ending = ending
        self._crossing = crossing

    def __call__(self, record: bytes) -> float | None:
        """Return the decision for a row, or None."""
        values = values_of(record, len(self._columns))
        if values is None:
            return None
        parts = [_contribution(column, value) for column, value in zip(self._columns, values, strict=True)]
        decision = sum((part for part, _ in parts), self._intercept)
        square = sum(square for _, square in parts)
        if not math.isnan(decision):
            cells = self._weights_of_cells(values)
            decision, square = sum(cells, decision), square + self._crossing.square * len(cells)
        decision = _ended(self._ending, decision, square)
        return None if math.isnan(decision) else decision

    def _weights_of_cells(self, values: list[bytes | None]) -> list[float]:
        """Return the weight of the cell of each pair that the row has one of."""
        groups = [_group(each, self._columns[each.place], values[each.place]) for each in self._crossing.groups]
        return [
            pair.weights[groups[pair.first] * self._crossing.groups[pair.second].groups + groups[pair.second]]
            for pair in self._crossing.pairs
            if groups[pair.first] >= 0 and groups[pair.second] >= 0
        ]


def _contribution(column: Column, value: bytes | None) -> tuple[float, float]:
    """Return the summands of a value in the decision, NaN for a null or a number that is not finite, and the square."""
    if column.kind == "-":
        return 0.0, 0.0
    if value is None:
        return math.nan, 0.0
    if column.kind in "tb":
        weight = column.lookup.get(value.rstrip(b" ") if column.kind == "b" else value)
        return (0.0, 0.0) if weight is None else (weight, 1.0)
    number = number_of(column, value)
    return _weighted(column, number) if math.isfinite(number) else (math.nan, 0.0)


def _weighted(column: Column, number: float) -> tuple[float, float]:
    """Return the summands of a finite number in the decision and in the squared norm of the row."""
    weight, lower, upper = column.numbers
    position, (origin, length) = min(max(number, lower), upper), column.affine
    if column.bend is not None:
        centre, factor = column.bend
        position = math.asinh((position - centre) * factor)
    if column.intervals:
        begins = [each.begin for each in column.intervals]
        chosen = column.intervals[bisect.bisect_right(begins, number) - 1]
        part = min(max((position - chosen.start) / chosen.length, 0.0), 1.0)
        return chosen.weight + chosen.rise * part, part**2 + (1 - part) ** 2
    coordinate = (position - origin) / length
    return weight * coordinate, coordinate * coordinate


def _group(group: ColumnGroups, column: Column, value: bytes | None) -> int:
    """Return the group of a value, -1 for an unknown category."""
    if group.lookup is None:
        return bisect.bisect_right(group.edges, number_of(column, value))
    return -1 if value is None else group.lookup.get(value.rstrip(b" ") if column.kind == "b" else value, -1)


class ClassScorer:
    """Returns the number of the class, from 0, whose scorer has the largest decision; the first of equal ones."""

    def __init__(self, scorers: list[Scorer], classes: list[str]) -> None:
        self.classes = classes
        self._scorers = scorers

    def __call__(self, features: bytes) -> float | None:
        """Return the number of the class, or None if a scorer has no decision."""
        best, largest = None, -math.inf
        for number, scorer in enumerate(self._scorers):
            decision = scorer(features)
            if decision is None:
                return None
            if best is None or decision > largest:
                best, largest = float(number), decision
        return best
