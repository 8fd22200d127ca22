"""Prediction with a released model: decisions for arrays and for rows, inside the server.

`dbdp.predict` is called once for each row, so each scorer has a compiled form; the classes here are
the reference, and the fallback where there is no compiler. A model is `binary`, of `classes`, or
`real`, as its dataset's label, and each kind has its own functions. A network is scored by NumPy, which is
loaded with the first one.
"""

import bisect
import ctypes
import json
import math
import operator
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from dbdp.interfaces.sql import threads
from dbdp.learning.rows.features import CENTRED, SCALED, UNIT, Numeric
from dbdp.registry.declarations import Declaration, declare

_ARRAY_HEADER = struct.Struct("<5i")
_NUMERIC_DIGITS = 10  # 37 decimal digits or more: beyond what a float holds
MOST_KNOWN = 256  # scorers that a session keeps: one that asks for many models does not grow with them
_FLOAT4 = 700  # PostgreSQL's number of the type
_NUMBER_FORMATS = {"smallint": "h", "integer": "i", "bigint": "q", "real": "f", "double precision": "d"}
_WHOLE_NUMBERS = ("smallint", "integer", "bigint")
_NUMBER_KINDS = {
    **{whole: "i" for whole in (*_WHOLE_NUMBERS, "boolean")},
    **{broken: "f" for broken in ("real", "double precision")},
    "numeric": "c",
}
_CATEGORY_KINDS = {
    **{plain: "t" for plain in ("text", "character varying", "enum", "boolean", *_WHOLE_NUMBERS)},
    "character": "b",
}
_STORED_PLAIN = {"text", "character varying", "character", "boolean", *_NUMBER_FORMATS}
Scorer = Callable[[bytes], float | None]


class Column(NamedTuple):
    """How a column of a row is read, and what it adds to a decision.

    Attributes
    ----------
    kind : str
        `-` ignored, `i` whole number, `f` float, `c` number that `lookup` decodes, `t` category in `lookup`, `b`
        category padded with blanks.
    numbers : (weight, lower, upper)
        Of a number, which is clipped to its bounds.
    lookup : dict or callable
        Weights of the categories; or what decodes a number.
    affine : (origin, length)
        A position p on the number's scale becomes the coordinate (p - origin) / length, which the weight multiplies.
    bend : (centre, factor) or None
        Of the scale asinh(factor (x - centre)); see `Numeric.bend`.
    bins : (edges, weights) or None
        Where bins but the first begin, and the weight of each.
    """

    kind: str
    numbers: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lookup: Any = None
    affine: tuple[float, float] = (0.0, 1.0)
    bend: tuple[float, float] | None = None
    bins: tuple[tuple[float, ...], tuple[float, ...]] | None = None


class Ending(NamedTuple):
    """What becomes of the weighted sum of a row's coordinates.

    Attributes
    ----------
    square : float
        What the intercept adds to the squared norm of a row that the decision is divided by, 1 or 0; NaN where a
        decision is not divided.
    norm_bound : float
        What an array's numbers are divided by before their norm.
    least, most : float
        The decision is clipped to these.
    """

    square: float = math.nan
    norm_bound: float = 1.0
    least: float = -math.inf
    most: float = math.inf

    def of(self, decision: float, square: float) -> float:
        """Return the decision from the sum and the squared norm of the features."""
        if not math.isnan(self.square):
            norm = math.sqrt(square + self.square)
            decision = decision / norm if norm else 0.0 * decision
        return decision if math.isnan(decision) else min(max(decision, self.least), self.most)


_IGNORED = Column("-")
_PLAIN = Ending()


class VectorScorer:
    """intercept + ⟨weights, array⟩ from the bytes of a float8[] or float4[]; None where it is no such array.

    An array of another shape, with a null, or with a value that is not finite gives None.
    """

    def __init__(self, weights: list[float], intercept: float, ending: Ending = _PLAIN) -> None:
        self._weights = weights
        self._intercept = intercept
        self._ending = ending

    def __call__(self, features: bytes) -> float | None:
        if len(features) < _ARRAY_HEADER.size:
            return None
        dimensions, nulls, element, length, _ = _ARRAY_HEADER.unpack_from(features)
        elements = struct.Struct(f"<{len(self._weights)}{'f' if element == _FLOAT4 else 'd'}")
        whole = dimensions == 1 and not nulls and length == len(self._weights)
        if not whole or len(features) != _ARRAY_HEADER.size + elements.size:
            return None
        values = elements.unpack_from(features, _ARRAY_HEADER.size)
        if not math.isnan(self._ending.square):
            return self._of_norm_one(values)
        decision = self._intercept + sum(map(operator.mul, self._weights, values))
        return self._ending.of(decision, 0.0) if math.isfinite(decision) else None

    def _of_norm_one(self, values: tuple[float, ...]) -> float | None:
        """Return the decision divided by the row's norm; its largest number is divided out first: nothing overflows."""
        if not all(map(math.isfinite, values)):
            return None
        ending, largest = self._ending, max(map(abs, values))
        if ending.square:
            largest = max(largest, ending.norm_bound)
        if not largest:
            return 0.0
        shares = [value / largest for value in values]
        decision = self._intercept / largest + sum(map(operator.mul, self._weights, shares))
        length = math.hypot(*shares, *([ending.norm_bound / largest] * bool(ending.square)))
        return decision * (ending.norm_bound / length)


class RecordScorer:
    """intercept + Σ contribution of each column, from the binary form of a row (`record_send`).

    Columns are in the row's order. A null or not finite feature gives None; numbers are clipped to their bounds.
    """

    def __init__(self, columns: list[Column], intercept: float, ending: Ending = _PLAIN) -> None:
        self._columns = columns
        self._intercept = intercept
        self._ending = ending

    def __call__(self, record: bytes) -> float | None:
        values = _values(record, len(self._columns))
        if values is None:
            return None
        pairs = [_contribution(column, value) for column, value in zip(self._columns, values, strict=True)]
        decision = sum((part for part, _ in pairs), self._intercept)
        decision = self._ending.of(decision, sum(square for _, square in pairs))
        return None if math.isnan(decision) else decision


class RecordReader:
    """The numbers of some of the columns of a row in its binary form, as packing knows them.

    They are those of `RecordScorer`, at `places` of the row. A category is its weight in `lookup`, or -1;
    a null is NaN.
    """

    def __init__(self, columns: list[Column], places: list[int]) -> None:
        self._columns = columns
        self._places = places

    def __call__(self, record: bytes) -> list[float] | None:
        values = _values(record, len(self._columns))
        return None if values is None else [_number(self._columns[place], values[place]) for place in self._places]


def _values(record: bytes, columns: int) -> list[bytes | None] | None:
    """Return a row's values (None for null), or None where it has another count of columns."""
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


def _contribution(column: Column, value: bytes | None) -> tuple[float, float]:
    """Return what a value adds to the decision, NaN for a null or a number that is not finite, and to the square."""
    if column.kind == "-":
        return 0.0, 0.0
    if value is None:
        return math.nan, 0.0
    if column.kind in "tb":
        weight = column.lookup.get(value.rstrip(b" ") if column.kind == "b" else value)
        return (0.0, 0.0) if weight is None else (weight, 1.0)
    number = _number(column, value)
    return _weighted(column, number) if math.isfinite(number) else (math.nan, 0.0)


def _weighted(column: Column, number: float) -> tuple[float, float]:
    """Return what a finite number adds to the decision, and to the squared norm of the row."""
    if column.bins is not None:
        edges, weights = column.bins
        return weights[bisect.bisect_right(edges, number)], 1.0
    weight, lower, upper = column.numbers
    position, (origin, length) = min(max(number, lower), upper), column.affine
    if column.bend is not None:
        centre, factor = column.bend
        position = math.asinh((position - centre) * factor)
    coordinate = (position - origin) / length
    return weight * coordinate, coordinate * coordinate


def _number(column: Column, value: bytes | None) -> float:
    """Return a number as it is, and of a category its weight or -1; NaN for a null."""
    kind, lookup = column.kind, column.lookup
    if value is None:
        return math.nan
    if kind in "tb":
        return float(lookup.get(value.rstrip(b" ") if kind == "b" else value, -1.0))
    return float(lookup(value)) if kind == "c" else _plain_number(value, kind)


def _plain_number(value: bytes, kind: str) -> float:
    if kind == "f":
        return float(struct.unpack(">d" if len(value) == 8 else ">f", value)[0])
    return float(int.from_bytes(value, "big", signed=len(value) > 1))


class ClassScorer:
    """The number of the class, from 0, whose own scorer gives the largest decision; the first of equal ones."""

    def __init__(self, scorers: list[Scorer], classes: list[str]) -> None:
        self.classes = classes
        self._scorers = scorers

    def __call__(self, features: bytes) -> float | None:
        best, largest = None, -math.inf
        for number, scorer in enumerate(self._scorers):
            decision = scorer(features)
            if decision is None:
                return None
            if best is None or decision > largest:
                best, largest = float(number), decision
        return best


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


class Scorers:
    """The scorers of this session for models of one kind, made when a model is first used; models never change.

    A parallel worker cannot ask the server for the model through PL/Python. So `predict` and its like
    give None while there is no scorer, and the caller then passes the model to `learn`. A table can be
    altered between two statements, so scorers of rows are kept for one: `predict_stored` or its like,
    which is asked first, is told which. Its compiled form reads rows as they are stored, in half the
    time; here it gives None, and the caller goes on with the binary form. What one role has had learned is
    forgotten when another asks: it may have described the model as it liked, or may see others.
    """

    def __init__(self, current_role: Callable[[], int] = int) -> None:
        self._known: dict[tuple[int, int], Scorer] = {}
        self._statement = math.nan
        self._current_role = current_role
        self._role = 0

    def _forget_other_roles(self) -> None:
        role = self._current_role()
        if role != self._role:
            self.forget()
            self._role = role

    def forget(self) -> None:
        """Drop all scorers."""
        self._known.clear()

    def add(self, model: int, row_type: int, scorer: Scorer, _stored: Scorer | None = None) -> None:
        """Keep the scorer of a model for rows of a type."""
        self._forget_other_roles()
        if len(self._known) >= MOST_KNOWN:
            self.forget()
        self._known[model, row_type] = scorer

    def knows(self, model: int, row_type: int) -> bool:
        """Return whether there is a scorer."""
        self._forget_other_roles()
        return (model, row_type) in self._known

    def _decision(self, model: int, row_type: int, features: bytes) -> float | None:
        self._forget_other_roles()
        scorer = self._known.get((model, row_type))
        return None if scorer is None else scorer(features)

    def probability(self, model: int, row_type: int, features: bytes) -> float | None:
        """Return the probability of the positive class, or None; `row_type` is 0 for arrays."""
        decision = self._decision(model, row_type, features)
        return None if decision is None else 1.0 / (1.0 + math.exp(min(-decision, 700.0)))

    def predict(self, model: int, row_type: int, features: bytes) -> bool | None:
        """Return whether the decision is above 0, or None."""
        decision = self._decision(model, row_type, features)
        return None if decision is None else decision > 0

    def value(self, model: int, row_type: int, features: bytes) -> float | None:
        """Return the decision, or None."""
        return self._decision(model, row_type, features)

    def label(self, model: int, row_type: int, features: bytes) -> str | None:
        """Return the class that a ClassScorer chooses, or None."""
        chosen = self._decision(model, row_type, features)
        return None if chosen is None else self._known[model, row_type].classes[int(chosen)]

    def predict_stored(self, _model: int, _row: bytes, statement: float) -> None:
        """Forget the scorers of another statement's rows; return None: only the compiled form reads them."""
        if statement != self._statement:
            self._statement = statement
            self._known = {key: scorer for key, scorer in self._known.items() if key[1] == 0}

    probability_stored = value_stored = label_stored = predict_stored


try:
    from dbdp.interfaces.sql import _scorer as compiled
except ImportError:  # built without a C compiler
    compiled = None

_forms: Any = compiled or sys.modules[__name__]


def _function_of_role() -> tuple[Any, ...]:
    """Return the server's own function that tells the current role, as the scorers take it; none in a client."""
    found = getattr(ctypes.PyDLL(None), "GetUserId", None)
    if found is None:
        return ()
    return (ctypes.cast(found, ctypes.c_void_p).value,) if compiled else (found,)


_scorers: dict[str, Any] = {kind: _forms.Scorers(*_function_of_role()) for kind in ("binary", "classes", "real")}
predict, predict_stored = _scorers["binary"].predict, _scorers["binary"].predict_stored
probability, probability_stored = _scorers["binary"].probability, _scorers["binary"].probability_stored
predict_class, predict_class_stored = _scorers["classes"].label, _scorers["classes"].label_stored
predict_value, predict_value_stored = _scorers["real"].value, _scorers["real"].value_stored
_DOORS = {
    "binary": "dbdp.predict or dbdp.predict_probability",
    "classes": "dbdp.predict_class",
    "real": "dbdp.predict_value",
}


def forget() -> None:
    """Drop all scorers."""
    for scorers in _scorers.values():
        scorers.forget()


def knows(model: int, row_type: int, kind: str) -> bool:
    """Return whether there is a scorer of a model of this kind."""
    return kind in _scorers and _scorers[kind].knows(model, row_type)


def learn(model: int | None, row_type: int, description: str | None, kind: str) -> bool:
    """Make the scorers of a model from dbdp.model_description; return True, or False for no model.

    Raises
    ------
    ValueError
        If there is no such model, it is of another kind, or it does not fit such rows.
    """
    if model is None:
        return False
    if description is None:
        raise ValueError(f"model {model} does not exist; see dbdp.models")
    described = json.loads(description)
    declaration = declare(**described["declaration"])
    if declaration.kind != kind:
        raise ValueError(f"model {model} is of the kind {declaration.kind!r}; call {_DOORS[declaration.kind]}")
    if described["network"]:
        forms = _of_network(declaration, described, row_type)
    else:
        make = _of_rows if row_type else _of_array
        forms = _of_classes(declaration, described, make) if kind == "classes" else make(declaration, described)
    _scorers[kind].add(model, row_type, *forms)
    return True


def _of_network(declaration: Declaration, described: dict[str, Any], row_type: int) -> tuple[Scorer, ...]:
    """Return the scorer, which is Python's in either form."""
    threads.hold_blas_to_one()
    from dbdp.registry import network_models

    if row_type:
        types = _types(declaration, described)
        weights = [1.0] * sum(each.width for each in declaration.numeric)
        weights += [float(place) for each in declaration.categorical for place in range(len(each.categories))]
        places = [list(types).index(column) for column in declaration.columns]
        packer = network_models.column_packer(RecordReader(_columns(declaration, weights, types, ">"), places))
    else:
        _check_array(declaration)
        packer = network_models.array_packer
    scorer = network_models.scorer(declaration, described["network"], described["parameters"], packer)
    return (compiled.CalledScorer(scorer, scorer.classes) if compiled else scorer,)


def _of_classes(declaration: Declaration, described: dict[str, Any], make: Callable[..., Any]) -> tuple[Scorer, ...]:
    """Return the scorers, in each form, that choose among the classes' own; all would be divided by one norm."""
    declaration = replace(declaration, encoding=SCALED)
    outputs = zip(described["coefficients"], described["intercepts"], strict=True)
    single = [make(declaration, described | {"coefficients": c, "intercept": i}) for c, i in outputs]
    return tuple(_forms.ClassScorer(list(form), list(declaration.classes)) for form in zip(*single, strict=True))


def _types(declaration: Declaration, described: dict[str, Any]) -> dict[str, str]:
    """Return the types of a row's columns.

    Raises
    ------
    ValueError
        If it does not have the model's.
    """
    types = {column: type_name for column, (type_name, *_) in (described["columns"] or {}).items()}
    missing = [column for column in declaration.columns if column not in types]
    if missing or declaration.vector:
        raise ValueError(
            f"the row does not have the columns {', '.join(declaration.columns)} as the model wants them; "
            "give a row of a table or view that has them, or the array that the model was trained on"
        )
    return types


def _check_array(declaration: Declaration) -> None:
    if declaration.vector is None:
        columns = ", ".join(declaration.columns)
        raise ValueError(f"the model was trained on columns, not on an array; give a row with the columns {columns}")


def _of_rows(declaration: Declaration, described: dict[str, Any]) -> tuple[Scorer, ...]:
    types, ending = _types(declaration, described), _ending(declaration)
    weights, intercept = _of_coordinates(declaration, described["coefficients"], described["intercept"])
    binary = _forms.RecordScorer(_columns(declaration, weights, types, ">"), intercept, ending)
    plain = all(types[column] in _STORED_PLAIN for column in declaration.columns)
    if compiled is None or not plain or described["dropped"]:
        return (binary,)
    lengths, aligns = zip(*((length, align) for _, length, align in described["columns"].values()), strict=True)
    columns = _columns(declaration, weights, types, "<")
    return binary, compiled.StoredRowScorer(columns, intercept, lengths, "".join(aligns), ending)


def _of_array(declaration: Declaration, described: dict[str, Any]) -> tuple[Scorer, ...]:
    _check_array(declaration)
    return (_forms.VectorScorer(described["coefficients"], described["intercept"], _ending(declaration)),)


def _ending(declaration: Declaration) -> Ending:
    """Return what becomes of a sum: models of versions before are neither divided nor clipped."""
    if declaration.encoding == UNIT:
        vector = declaration.vector
        return Ending(float(declaration.intercept), vector.norm_bound if vector else 1.0)
    if declaration.encoding == CENTRED and declaration.label_bounds:
        return Ending(least=declaration.label_bounds[0], most=declaration.label_bounds[1])
    return _PLAIN


def _affine(declaration: Declaration, feature: Numeric) -> tuple[float, float]:
    """Return how positions become what the weights multiply: coordinates where their norm counts, else themselves."""
    return feature.affine(UNIT) if declaration.encoding == UNIT and not feature.bins else (0.0, 1.0)


def _of_coordinates(declaration: Declaration, coefficients: list[float], intercept: float) -> tuple[list[float], float]:
    """Return weights and intercept for the coordinates of `_affine`, from those for the columns as they are."""
    weights = list(coefficients)
    place = 0
    for feature in declaration.numeric:
        origin, length = _affine(declaration, feature)
        intercept += weights[place] * origin
        weights[place] *= length
        place += feature.width
    return weights, intercept


def _columns(declaration: Declaration, weights: list[float], types: dict[str, str], order: str) -> list[Column]:
    """Return the columns in the row's own order, from weights in the declaration's; `order` of bytes."""
    remaining = iter(weights)
    used: dict[str, Column] = {}
    for numeric in declaration.numeric:
        kind = _kind(numeric.column, types, _NUMBER_KINDS)
        decode = decode_numeric if kind == "c" else None
        own = tuple(next(remaining) for _ in range(numeric.width))
        numbers, bins = (own[0], numeric.lower, numeric.upper), (numeric.edges, own) if numeric.bins else None
        used[numeric.column] = Column(kind, numbers, decode, _affine(declaration, numeric), numeric.bend, bins)
    for categorical in declaration.categorical:
        kind = _kind(categorical.column, types, _CATEGORY_KINDS)
        binary = [_binary(category, types[categorical.column], order) for category in categorical.categories]
        used[categorical.column] = Column(kind, lookup=dict(zip(binary, remaining, strict=False)))
    return [used.get(column, _IGNORED) for column in types]


def _kind(column: str, types: dict[str, str], kinds: dict[str, str]) -> str:
    """Return how a column is read.

    Raises
    ------
    ValueError
        If its type is none that the model was trained on.
    """
    type_name = "enum" if types[column].startswith("enum ") else types[column]
    if type_name not in kinds:
        raise ValueError(f"column {column!r} of the row is {types[column]}; it must be one of {', '.join(kinds)}")
    return kinds[type_name]


def _binary(category: str, type_name: str, order: str) -> bytes:
    """Return a category as the bytes of its column's type; a number that it cannot hold as text."""
    if type_name == "boolean" and category in ("true", "false"):
        return b"\x01" if category == "true" else b"\x00"
    if type_name in _WHOLE_NUMBERS:
        try:
            return struct.pack(order + _NUMBER_FORMATS[type_name], int(category))
        except (ValueError, struct.error):
            return category.encode()
    return category.encode()
