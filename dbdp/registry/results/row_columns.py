"""How the columns of a row are read, and their summands in a decision, from a model's declaration."""

import math
import struct
from itertools import islice, pairwise
from typing import Any, NamedTuple

from dbdp import checks
from dbdp.learning.rows.features import CATEGORY, CENTRED, REQUIRED, UNIT, Categorical, Numeric, constant_of
from dbdp.learning.rows.pairs import Side
from dbdp.registry.declarations import Declaration

_NUMERIC_DIGITS = 10  # 37 decimal digits or more: beyond the precision of a float
_NUMBER_FORMATS = {"smallint": "h", "integer": "i", "bigint": "q", "real": "f", "double precision": "d"}
_INTEGERS = ("smallint", "integer", "bigint")
_NUMBER_KINDS = {
    **{name: "i" for name in (*_INTEGERS, "boolean")},
    **{name: "f" for name in ("real", "double precision")},
    "numeric": "c",
}
_CATEGORY_KINDS = {
    **{name: "t" for name in ("text", "character varying", "enum", "boolean", *_INTEGERS)},
    "character": "b",
}
STORED_PLAIN = {"text", "character varying", "character", "boolean", *_NUMBER_FORMATS}


class Column(NamedTuple):
    """How a column of a row is read, and its summand in a decision."""

    # `-` ignored, `i` whole number, `f` float, `c` number that `lookup` decodes, `t` category in `lookup`, `b` category
    # padded with blanks.
    kind: str
    # Weight, lower and upper bound of a number, which is clipped to its bounds.
    numbers: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lookup: Any = None  # weights of the categories; or the function that decodes a number
    # Origin and length: a position p on the number's scale becomes the coordinate (p - origin) / length, which the
    # weight multiplies.
    affine: tuple[float, float] = (0.0, 1.0)
    # Centre and factor of the scale asinh(factor (x - centre)); see `Numeric.bend`.
    bend: tuple[float, float] | None = None
    intervals: "tuple[Interval, ...]" = ()  # the bins, or the intervals between knots, in their order
    # The number that NULL, or a number that is not finite, counts as; 0 for categories, where `lookup` has NULL under
    # None if it is one. NaN: a row with NULL has no decision.
    missing: float = math.nan
    indicator: float | None = None  # weight of the indicator of NULL


class Interval(NamedTuple):
    """A bin, or an interval between two knots: at a position p on the scale it adds weight + rise·(p - start)/length.

    Its coordinates are there 1 - f and f, f = (p - start)/length; those of a bin, whose rise is 0, are at f = 0.
    """

    begin: float  # in the column's units; -∞ of the first one
    weight: float
    rise: float = 0.0
    start: float = 0.0
    length: float = math.inf


class ColumnGroups(NamedTuple):
    """How a column's value has a group, for pairs of columns."""

    place: int  # place of the column in a row
    groups: int  # number of groups
    edges: tuple[float, ...] = ()  # of a number: the lower edges of the groups except the first
    lookup: dict[bytes | None, int] | None = None  # of a category: the group of each


class Cells(NamedTuple):
    """The summands of a pair of columns: the weight of cell i·(groups of the second) + j."""

    # first, second: places of both columns in the list of `ColumnGroups`.
    first: int
    second: int
    weights: tuple[float, ...]  # the weights of the cells


class Crossing(NamedTuple):
    """The pairs of columns of a model; `square` is the summand of a cell in the squared norm of the row."""

    groups: tuple[ColumnGroups, ...] = ()
    pairs: tuple[Cells, ...] = ()
    square: float = 1.0


class Ending(NamedTuple):
    """How the weighted sum of a row's coordinates becomes a decision: divided by the row's norm, and clipped."""

    # The intercept's summand in the squared norm of the row by which the decision is divided, 0 without one; NaN if a
    # decision is not divided.
    square: float = math.nan
    norm_bound: float = 1.0  # the divisor of an array's numbers before their norm is computed
    # least, most: bounds to which the decision is clipped.
    least: float = -math.inf
    most: float = math.inf


IGNORED = Column("-")
PLAIN = Ending()


def types_of(declaration: Declaration, described: dict[str, Any]) -> dict[str, str]:
    """Return the types of a row's columns."""
    types = {column: type_name for column, (type_name, *_) in (described["columns"] or {}).items()}
    if vector := declaration.vector:
        raise ValueError(
            f"the model was trained on the array in column {vector.column!r}, not on a row; pass that array, such as "
            f"t.{vector.column} of a row t"
        )
    if described["columns"] is None:
        columns = ", ".join(declaration.columns)
        raise ValueError(
            "the columns of a row of a subquery, a CTE or a join have no names that a function can see; pass "
            f"to_jsonb(x) instead of the row x, with the columns {columns}"
        )
    missing = [column for column in declaration.columns if column not in types]
    if missing:
        raise ValueError(
            f"the row does not have the {checks.columns(missing)} of the model; pass a row of a table or view that has "
            f"{', '.join(declaration.columns)}, or to_jsonb of any row that has them"
        )
    return types


def ending(declaration: Declaration) -> Ending:
    """Return the ending of a model's decisions: those of earlier versions are neither divided nor clipped."""
    if declaration.encoding == UNIT:
        constant, vector = float(declaration.intercept), declaration.vector
        return Ending((constant * constant_of(vector.length)) ** 2, vector.norm_bound) if vector else Ending(constant)
    if declaration.encoding == CENTRED and declaration.label_bounds:
        return Ending(least=declaration.label_bounds[0], most=declaration.label_bounds[1])
    return PLAIN


def _affine(declaration: Declaration, feature: Numeric) -> tuple[float, float]:
    """Return the map of positions to coordinates if the norm is needed, else the identity; weights multiply these."""
    return feature.affine(UNIT) if declaration.encoding == UNIT and not feature.is_shared else (0.0, 1.0)


def of_coordinates(declaration: Declaration, coefficients: list[float], intercept: float) -> tuple[list[float], float]:
    """Return weights and intercept for the coordinates of `_affine`, from those in the units of the columns."""
    weights = list(coefficients)
    place = 0
    for feature in declaration.numeric:
        origin, length = _affine(declaration, feature)
        intercept += weights[place] * origin
        weights[place] *= length
        place += feature.width
    return weights, intercept


def columns(declaration: Declaration, weights: list[float], types: dict[str, str], order: str) -> list[Column]:
    """Return the columns in the row's own order, from weights in the declaration's; `order` of bytes."""
    remaining = iter(weights)
    used: dict[str, Column] = {}
    for numeric in declaration.numeric:
        kind = _kind(numeric.column, types, _NUMBER_KINDS)
        decode = decode_numeric if kind == "c" else None
        own = tuple(next(remaining) for _ in range(numeric.width - numeric.indicator))
        numbers, intervals = (own[0], numeric.lower, numeric.upper), _intervals(numeric, own)
        how = kind, numbers, decode, _affine(declaration, numeric), numeric.bend, intervals
        missing = math.nan if numeric.missing is None else numeric.missing
        used[numeric.column] = Column(*how, missing, next(remaining) if numeric.indicator else None)
    for categorical in declaration.categorical:
        kind = _kind(categorical.column, types, _CATEGORY_KINDS)
        binary = _binary_values(categorical, types, order)
        weights_of = dict(zip(binary, islice(remaining, len(binary)), strict=True))
        used[categorical.column] = Column(kind, lookup=weights_of, missing=_missing(categorical))
    return [used.get(column, IGNORED) for column in types]


def _intervals(numeric: Numeric, weights: tuple[float, ...]) -> tuple[Interval, ...]:
    """Return the intervals of a number with bins or knots; none of another one."""
    if numeric.bins:
        return tuple(map(Interval, (-math.inf, *numeric.edges), weights))
    rises = [after - before for before, after in pairwise(weights)] if numeric.knots else []
    lengths = [after - before for before, after in pairwise(numeric.positions_of_knots)]
    begins = (-math.inf, *numeric.values_at_knots[1:-1])
    return tuple(map(Interval, begins, weights, rises, numeric.positions_of_knots, lengths))


def crossing(declaration: Declaration, weights: list[float], types: dict[str, str], order: str) -> Crossing:
    """Return the pairs of a declaration, from the weights of all coordinates; their cells are the last ones."""
    sides = list(dict.fromkeys(side for pair in declaration.products for side in (pair.first, pair.second)))
    pairs, first = [], len(weights) - sum(pair.width for pair in declaration.products)
    for pair in declaration.products:
        cells = tuple(weights[first : first + pair.width])
        pairs.append(Cells(sides.index(pair.first), sides.index(pair.second), cells))
        first += pair.width
    groups = tuple(_group_of(side, types, order) for side in sides)
    return Crossing(groups, tuple(pairs), declaration.pair_weight**2)


def _group_of(side: Side, types: dict[str, str], order: str) -> ColumnGroups:
    """Return how the values of a column of a pair have a group."""
    column, feature = side.feature.column, side.feature
    place = list(types).index(column)
    if isinstance(feature, Numeric):
        return ColumnGroups(place, side.groups, feature.edges)
    binary = _binary_values(feature, types, order)
    return ColumnGroups(place, side.groups, lookup=dict(zip(binary, side.group_of_category, strict=True)))


def _kind(column: str, types: dict[str, str], kinds: dict[str, str]) -> str:
    """Return how a column is read."""
    type_name = "enum" if types[column].startswith("enum ") else types[column]
    if type_name not in kinds:
        raise ValueError(f"column {column!r} of the row is {types[column]}; it must be one of {', '.join(kinds)}")
    return kinds[type_name]


def _binary_values(feature: Categorical, types: dict[str, str], order: str) -> list[bytes | None]:
    """Return the categories as bytes of their column's type, then None if NULL is a category."""
    binary = [_binary(category, types[feature.column], order) for category in feature.categories]
    return [*binary, *[None] * (feature.null == CATEGORY)]


def _missing(feature: Categorical) -> float:
    return math.nan if feature.null == REQUIRED else 0.0


def _binary(category: str, type_name: str, order: str) -> bytes:
    """Return a category as the bytes of its column's type; as text if it is a number beyond that type."""
    if type_name == "boolean" and category in ("true", "false"):
        return b"\x01" if category == "true" else b"\x00"
    if type_name in _INTEGERS:
        try:
            return struct.pack(order + _NUMBER_FORMATS[type_name], int(category))
        except (ValueError, struct.error):
            return category.encode()
    return category.encode()


def decode_numeric(value: bytes) -> float:
    """Return the float nearest to a `numeric` in binary form (base-10000 digits, weight, sign), within ±1e300."""
    count, weight, sign, _ = struct.unpack_from(">hhHH", value)
    if sign not in (0x0000, 0x4000):
        return math.nan  # NaN and the infinities
    leading = min(count, _NUMERIC_DIGITS)
    number = 0
    for digit in struct.unpack_from(f">{leading}h", value, 8):
        number = number * 10000 + digit
    magnitude = min(float(f"{number}e{4 * (weight - leading + 1)}"), 1e300)
    return -magnitude if sign else magnitude


class RecordReader:
    """Reads some columns of a row in its binary form as numbers, in the form that packing uses.

    Columns are those of `_scorer.RecordScorer`, at `places` of the row. A category becomes its weight in `lookup`,
    or -1; a null becomes NaN, or for categories their declared meaning of it.
    """

    def __init__(self, columns: list[Column], places: list[int]) -> None:
        self._columns = columns
        self._places = places

    def __call__(self, record: bytes) -> list[float] | None:
        """Return the numbers of a row, or None if it has another number of columns."""
        values = values_of(record, len(self._columns))
        return None if values is None else [number_of(self._columns[place], values[place]) for place in self._places]


def values_of(record: bytes, columns: int) -> list[bytes | None] | None:
    """Return a row's values (None for null); None if it does not have this number of columns."""
    if len(record) < 4 or struct.unpack_from(">i", record)[0] != columns:
        return None
    place, values = 4, []
    for _ in range(columns):
        if place + 8 > len(record):
            return None
        (size,) = struct.unpack_from(">i", record, place + 4)
        place += 8
        if size > len(record) - place:
            return None
        values.append(None if size < 0 else record[place : place + size])
        place += max(size, 0)
    return values


def number_of(column: Column, value: bytes | None) -> float:
    """Return a number, NaN for a null; or a category's weight, -1 for an unknown one."""
    kind, lookup = column.kind, column.lookup
    if value is None:
        return float(lookup.get(None, -1.0)) if kind in "tb" and not math.isnan(column.missing) else math.nan
    if kind in "tb":
        return float(lookup.get(value.rstrip(b" ") if kind == "b" else value, -1.0))
    return float(lookup(value)) if kind == "c" else _plain_number(value, kind)


def _plain_number(value: bytes, kind: str) -> float:
    if kind == "f":
        return float(struct.unpack(">d" if len(value) == 8 else ">f", value)[0])
    return float(int.from_bytes(value, "big", signed=len(value) > 1))
