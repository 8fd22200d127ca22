"""Prediction with a released model, for arrays and for rows, inside the server.

`dbdp.predict` is called once for each row, so each scorer has a compiled form; the classes here are
the reference, and the fallback without a compiler. The kind of a model is that of its dataset's label, `binary`,
`classes` or `real`, and each kind has its own functions. A network is scored by NumPy, which is
loaded with the first one.
"""

import bisect
import ctypes
import hashlib
import json
import math
import operator
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

from dbdp import checks
from dbdp.interfaces.sql import json_rows, outcomes, threads
from dbdp.learning.rows.features import CENTRED, SCALED, UNIT, Numeric, constant_of
from dbdp.learning.rows.pairs import WEIGHT, Side
from dbdp.registry.declarations import Declaration, declare

_ARRAY_HEADER = struct.Struct("<5i")
_NUMERIC_DIGITS = 10  # 37 decimal digits or more: beyond the precision of a float
MOST_KNOWN = 256  # scorers that a session holds, so that its memory does not grow with the number of models it uses
_FLOAT4 = 700  # PostgreSQL's OID of the type
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
_STORED_PLAIN = {"text", "character varying", "character", "boolean", *_NUMBER_FORMATS}
Scorer = Callable[[bytes], float | None]


class Column(NamedTuple):
    """How a column of a row is read, and its summand in a decision.

    Attributes
    ----------
    kind : str
        `-` ignored, `i` whole number, `f` float, `c` number that `lookup` decodes, `t` category in `lookup`, `b`
        category padded with blanks.
    numbers : tuple[float, float, float]
        Weight, lower and upper bound of a number, which is clipped to its bounds.
    lookup : dict or callable
        Weights of the categories; or the function that decodes a number.
    affine : tuple[float, float]
        Origin and length: a position p on the number's scale becomes the coordinate (p - origin) / length, which the
        weight multiplies.
    bend : tuple[float, float] | None
        Centre and factor of the scale asinh(factor (x - centre)); see `Numeric.bend`.
    bins : tuple of tuples | None
        The lower edges of the bins except the first, and the weight of each bin.
    """

    kind: str
    numbers: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lookup: Any = None
    affine: tuple[float, float] = (0.0, 1.0)
    bend: tuple[float, float] | None = None
    bins: tuple[tuple[float, ...], tuple[float, ...]] | None = None


class Group(NamedTuple):
    """How a column's value has a group, for pairs of columns.

    Attributes
    ----------
    place : int
        Place of the column in a row.
    groups : int
        Number of groups.
    edges : tuple of float
        Of a number: the lower edges of the groups except the first.
    lookup : dict or None
        Of a category: the group of each.
    """

    place: int
    groups: int
    edges: tuple[float, ...] = ()
    lookup: dict[bytes, int] | None = None


class Cells(NamedTuple):
    """The summands of a pair of columns: the weight of cell i·(groups of the second) + j.

    Attributes
    ----------
    first, second : int
        Places of both columns in the list of `Group`.
    weights : tuple of float
        The weights of the cells.
    """

    first: int
    second: int
    weights: tuple[float, ...]


class Crossing(NamedTuple):
    """The pairs of columns of a model; `square` is the summand of a cell in the squared norm of the row."""

    groups: tuple[Group, ...] = ()
    pairs: tuple[Cells, ...] = ()
    square: float = WEIGHT * WEIGHT


class Ending(NamedTuple):
    """How the weighted sum of a row's coordinates becomes a decision: divided by the row's norm, and clipped.

    Attributes
    ----------
    square : float
        The intercept's summand in the squared norm of the row by which the decision is divided, 0 without one; NaN if
        a decision is not divided.
    norm_bound : float
        The divisor of an array's numbers before their norm is computed.
    least, most : float
        Bounds to which the decision is clipped.
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
_NO_PAIRS = Crossing()


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
        return self._ending.of(decision, 0.0) if math.isfinite(decision) else None

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
        values = _values(record, len(self._columns))
        if values is None:
            return None
        parts = [_contribution(column, value) for column, value in zip(self._columns, values, strict=True)]
        decision = sum((part for part, _ in parts), self._intercept)
        square = sum(square for _, square in parts)
        if not math.isnan(decision):
            cells = self._weights_of_cells(values)
            decision, square = sum(cells, decision), square + self._crossing.square * len(cells)
        decision = self._ending.of(decision, square)
        return None if math.isnan(decision) else decision

    def _weights_of_cells(self, values: list[bytes | None]) -> list[float]:
        """Return the weight of the cell of each pair that the row has one of."""
        groups = [_group(each, self._columns[each.place], values[each.place]) for each in self._crossing.groups]
        return [
            pair.weights[groups[pair.first] * self._crossing.groups[pair.second].groups + groups[pair.second]]
            for pair in self._crossing.pairs
            if groups[pair.first] >= 0 and groups[pair.second] >= 0
        ]


class RecordReader:
    """Reads some columns of a row in its binary form as numbers, in the form that packing uses.

    Columns are those of `RecordScorer`, at `places` of the row. A category becomes its weight in `lookup`, or -1;
    a null becomes NaN.
    """

    def __init__(self, columns: list[Column], places: list[int]) -> None:
        self._columns = columns
        self._places = places

    def __call__(self, record: bytes) -> list[float] | None:
        """Return the numbers of a row, or None if it has another number of columns."""
        values = _values(record, len(self._columns))
        return None if values is None else [_number(self._columns[place], values[place]) for place in self._places]


def _values(record: bytes, columns: int) -> list[bytes | None] | None:
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


def _contribution(column: Column, value: bytes | None) -> tuple[float, float]:
    """Return the summands of a value in the decision, NaN for a null or a number that is not finite, and the square."""
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
    """Return the summands of a finite number in the decision and in the squared norm of the row."""
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


def _group(group: Group, column: Column, value: bytes | None) -> int:
    """Return the group of a value, -1 for an unknown category."""
    if group.lookup is None:
        return bisect.bisect_right(group.edges, _number(column, value))
    return -1 if value is None else group.lookup.get(value.rstrip(b" ") if column.kind == "b" else value, -1)


def _number(column: Column, value: bytes | None) -> float:
    """Return a number, or a category's weight, -1 for an unknown one; NaN for a null."""
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


class EncodedScorer:
    """Scores features in another form, which a function converts to the bytes that a scorer reads, or to None."""

    def __init__(self, encode: Callable[[bytes], bytes | None], scorer: Any) -> None:
        self.classes = getattr(scorer, "classes", None)
        self._encode, self._scorer = encode, scorer

    def __call__(self, features: bytes) -> float | None:
        """Return the decision for features, or None."""
        encoded = self._encode(features)
        return None if encoded is None else self._scorer(encoded)


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
    """The scorers of this session for models of one kind, created when a model is first used; models never change.

    A parallel worker cannot query the server for the model through PL/Python. So `predict` and similar methods
    return None while there is no scorer, and the caller then passes the model to `learn`. A table can be
    altered between two statements, and by a function within one. So scorers of rows are valid for one command:
    `predict_stored` and similar methods, which are called first, receive the time of the statement and look up the
    numbers of the command and of the subtransaction. Every change of a table raises the first, and where a
    subtransaction undoes a change, the second differs. Their compiled form reads rows as they are stored, in half
    the time; here they return None, and the caller passes the binary form. The scorers of one role are dropped when
    another calls: the first may have passed a false description of the model, and may see other models.
    """

    def __init__(
        self,
        current_role: Callable[[], int] = int,
        current_command: Callable[[bool], int] = int,
        current_subtransaction: Callable[[], int] = int,
    ) -> None:
        self._known: dict[tuple[int, int], Scorer] = {}
        self._command: tuple[float, int, int] | None = None
        self._named_in = math.nan
        self._numbers: dict[str, int] = {}
        self._current_role = current_role
        self._current_command, self._current_subtransaction = current_command, current_subtransaction
        self._role = 0

    def _forget_other_roles(self) -> None:
        role = self._current_role()
        if role != self._role:
            self.forget()
            self._role = role

    def forget(self) -> None:
        """Drop all scorers."""
        self._known.clear()
        self._numbers.clear()

    def add(self, model: int, row_type: int, scorer: Scorer, _stored: Scorer | None = None) -> None:
        """Store the scorer of a model for rows of a type."""
        self._forget_other_roles()
        if len(self._known) >= MOST_KNOWN:
            self.forget()
        self._known[model, row_type] = scorer

    def remember(self, name: str, number: int, statement: float) -> None:
        """Store the number of a model by its name, until the statement ends."""
        if self.number(name, statement) is None and len(self._numbers) >= MOST_KNOWN:
            self._numbers.clear()
        self._numbers[name] = number

    def number(self, name: str, statement: float) -> int | None:
        """Return the number that a name has in this statement, or None."""
        self._forget_other_roles()
        if statement != self._named_in:
            self._named_in, self._numbers = statement, {}
        return self._numbers.get(name)

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
        """Drop the scorers for rows of an earlier command; return None, since only the compiled form reads rows."""
        command = statement, self._current_command(False), self._current_subtransaction()
        if command != self._command:
            self._command = command
            self._known = {key: scorer for key, scorer in self._known.items() if key[1] == 0}

    probability_stored = value_stored = label_stored = predict_stored

    def predict_stored_named(self, _name: str, row: bytes, statement: float) -> None:
        """As `predict_stored`, by name."""
        self.predict_stored(0, row, statement)

    probability_stored_named = value_stored_named = label_stored_named = predict_stored_named

    def probability_named(self, name: str, row_type: int, features: bytes, statement: float) -> float | None:
        """As `probability`, by name."""
        number = self.number(name, statement)
        return None if number is None else self.probability(number, row_type, features)

    def predict_named(self, name: str, row_type: int, features: bytes, statement: float) -> bool | None:
        """As `predict`, by name."""
        number = self.number(name, statement)
        return None if number is None else self.predict(number, row_type, features)

    def value_named(self, name: str, row_type: int, features: bytes, statement: float) -> float | None:
        """As `value`, by name."""
        number = self.number(name, statement)
        return None if number is None else self.value(number, row_type, features)

    def label_named(self, name: str, row_type: int, features: bytes, statement: float) -> str | None:
        """As `label`, by name."""
        number = self.number(name, statement)
        return None if number is None else self.label(number, row_type, features)


try:
    from dbdp.interfaces.sql import _scorer as compiled
except ImportError:  # built without a C compiler
    compiled = None

_forms: Any = compiled or sys.modules[__name__]


def _functions_of_server() -> tuple[Any, ...]:
    """Return the server's functions that are the arguments of `Scorers`; an empty tuple in a client."""
    server = ctypes.PyDLL(None)
    if not hasattr(server, "GetUserId"):
        return ()
    functions = server.GetUserId, server.GetCurrentCommandId, server.GetCurrentSubTransactionId
    return tuple(ctypes.cast(each, ctypes.c_void_p).value for each in functions) if compiled else functions


_scorers: dict[str, Any] = {kind: _forms.Scorers(*_functions_of_server()) for kind in ("binary", "classes", "real")}
_binary_kind, _classes_kind, _real_kind = _scorers.values()
predict, predict_named = _binary_kind.predict, _binary_kind.predict_named
predict_stored, predict_stored_named = _binary_kind.predict_stored, _binary_kind.predict_stored_named
probability, probability_named = _binary_kind.probability, _binary_kind.probability_named
probability_stored, probability_stored_named = _binary_kind.probability_stored, _binary_kind.probability_stored_named
predict_class, predict_class_named = _classes_kind.label, _classes_kind.label_named
predict_class_stored, predict_class_stored_named = _classes_kind.label_stored, _classes_kind.label_stored_named
predict_value, predict_value_named = _real_kind.value, _real_kind.value_named
predict_value_stored, predict_value_stored_named = _real_kind.value_stored, _real_kind.value_stored_named
_FUNCTIONS = {
    "binary": "dbdp.predict or dbdp.predict_probability",
    "classes": "dbdp.predict_class",
    "real": "dbdp.predict_value",
}
_LABELS = {"binary": "a label with two values", "classes": "one of several classes", "real": "a number"}
_MISSING = "model is required, e.g. its name, or its number in dbdp.models"
_vouched: dict[tuple[int, int], bytes] = {}  # hashes of what the server stores, by model and row type
_names: dict[int, tuple[str | None, int | None]] = {}  # name and version, of models whose scorers were created
_checks: dict[tuple[str, int, int], Callable[[bytes | None], None]] = {}  # of arrays and JSON, by kind, model and type


def forget() -> None:
    """Drop all scorers."""
    _checks.clear()
    _names.clear()
    for scorers in _scorers.values():
        scorers.forget()


def knows(model: int, row_type: int, kind: str) -> bool:
    """Return whether there is a scorer for a model of this kind and rows of this type."""
    return kind in _scorers and _scorers[kind].knows(model, row_type)


def fits(model: int | None, row_type: int, features: bytes | None, kind: str) -> bool:
    """Return whether there is a scorer for a model, and an array or JSON has the form that the model needs."""
    if model is None or not knows(model, row_type, kind):
        return False
    check = _checks.get((kind, model, row_type))
    if check is None:
        return False
    try:
        check(features)
    except ValueError:
        return False
    return True


def fits_named(name: str | None, row_type: int, features: bytes | None, kind: str, statement: float) -> bool:
    """As `fits`, by name."""
    number = _scorers[kind].number(name, statement) if name is not None and kind in _scorers else None
    return fits(number, row_type, features, kind)


def knows_named(name: str, row_type: int, kind: str, statement: float) -> bool:
    """Return whether there is a scorer for the model that a name means in this statement."""
    number = _scorers[kind].number(name, statement) if kind in _scorers else None
    return number is not None and knows(number, row_type, kind)


def remember(name: str, number: int, kind: str, statement: float) -> int:
    """Store the number of a model by its name, until the statement ends, and return it."""
    if kind in _scorers and _is_name(name, number):
        _scorers[kind].remember(name, number, statement)
    return number


def _is_name(name: str, number: int) -> bool:
    """Return whether a name, `name@version` or number written as text means a model with a scorer."""
    own, version = _names.get(number, (None, None))
    return name == str(number) or (own is not None and name in (own, f"{own}@{version}"))


def vouch(model: int, row_type: int, description: str | None) -> bool:
    """Remember that a description is the one that the server stores; only `dbdp_internal.vouched` may call it."""
    if description is not None:
        if len(_vouched) >= MOST_KNOWN:
            _vouched.clear()
        _vouched[model, row_type] = _hash(description)
    return True


def _hash(description: str) -> bytes:
    return hashlib.sha256(description.encode()).digest()


def _check_vouched(model: int | None, row_type: int, description: str | None) -> None:
    """Raise ValueError for a description that `vouch` was not passed for the model and rows of the type."""
    if model is None or description is None or _vouched.get((model, row_type)) == _hash(description):
        return
    raise ValueError(
        f"the description of model {model} is not the server's; call dbdp.predict, or pass the result of "
        "dbdp_internal.model_description of the same model and type of rows"
    )


def no_model(name: str | None, known: list[str]) -> None:
    """Raise ValueError for a name that no model has; `known` are those that the caller may predict with."""
    raise ValueError(_MISSING if name is None else checks.no_model(name, known))


def try_no_model(*arguments: Any) -> None:
    """Refuse as `no_model` does; the refusal is recorded for `accepted`."""
    outcomes.recorded(no_model, *arguments)


def learn(model: int | None, row_type: int, description: str | None, kind: str) -> bool:
    """Create the scorers of a model from its description."""
    _learned(model, row_type, description, kind)
    return True


def learn_for(model: int | None, row_type: int, description: str | None, kind: str, features: bytes | None) -> bool:
    """Create the scorers of a model as `learn` does, and refuse an array or JSON that it cannot be used for."""
    declaration = _learned(model, row_type, description, kind)
    if len(_checks) >= MOST_KNOWN:
        _checks.clear()
    check = json_rows.checker(declaration) if row_type == json_rows.TYPE else partial(_check_shape, declaration)
    _checks[kind, cast(int, model), row_type] = check
    check(features)
    return True


def _check_shape(declaration: Declaration, features: bytes | None) -> None:
    """Raise ValueError unless an array, in the server's bytes, has the length of the array that was declared."""
    vector = declaration.vector
    if features is None or vector is None:
        return
    dimensions, length = struct.unpack_from("<i", features)[0], 0
    if dimensions > 1:
        raise ValueError(f"the array has {dimensions} dimensions; pass one list of {vector.length} numbers")
    if dimensions:
        length = struct.unpack_from("<i", features, 12)[0]
    if length != vector.length:
        raise ValueError(checks.wrong_length(length, vector.length))


def _learned(model: int | None, row_type: int, description: str | None, kind: str) -> Declaration:
    """Create the scorers of a model from its description, and return its declaration."""
    if model is None:
        raise ValueError(_MISSING)
    if description is None:
        raise ValueError(f"model {model} does not exist; see dbdp.models")
    described = json.loads(description)
    declaration = declare(**described["declaration"])
    if declaration.kind != kind:
        raise ValueError(f"model {model} predicts {_LABELS[declaration.kind]}; call {_FUNCTIONS[declaration.kind]}")
    make = _of_json if row_type == json_rows.TYPE else _scorers_of
    if len(_names) >= 4 * MOST_KNOWN:
        forget()
    _names[model] = described.get("name"), described.get("version")
    _scorers[kind].add(model, row_type, *make(declaration, described, row_type))
    return declaration


def _of_json(declaration: Declaration, described: dict[str, Any], row_type: int) -> tuple[Scorer, ...]:
    """Return the scorer of JSON, which is converted to the bytes of an array or a row first."""
    described = described | {"columns": json_rows.columns(declaration), "dropped": False}
    scorer = _scorers_of(declaration, described, 0 if declaration.vector else row_type)[0]
    return (_forms.EncodedScorer(json_rows.encoder(declaration), scorer),)


def _scorers_of(declaration: Declaration, described: dict[str, Any], row_type: int) -> tuple[Scorer, ...]:
    """Return the scorers of arrays, or of rows in their binary and, if possible, their stored form."""
    if described["network"]:
        return _of_network(declaration, described, row_type)
    make = _of_rows if row_type else _of_array
    return _of_classes(declaration, described, make) if declaration.kind == "classes" else make(declaration, described)


def _learn_vouched(model: int | None, row_type: int, description: str | None, *more: Any) -> bool:
    _check_vouched(model, row_type, description)
    return (learn_for if len(more) > 1 else learn)(model, row_type, description, *more)


def try_learn(*arguments: Any) -> bool | None:
    """Create the scorers as `learn` or, for features, `learn_for` does; a refusal is recorded for `accepted`."""
    learned: bool | None = outcomes.recorded(_learn_vouched, *arguments)
    return learned


def _of_network(declaration: Declaration, described: dict[str, Any], row_type: int) -> tuple[Scorer, ...]:
    """Return the scorer of a network, which calls Python in either form."""
    threads.limit_blas_to_one()
    from dbdp.registry.results import network_models

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
    """Return the scorers, in each form, that choose the class with the largest decision; one norm would divide all."""
    declaration = replace(declaration, encoding=SCALED)
    outputs = zip(described["coefficients"], described["intercepts"], strict=True)
    single = [make(declaration, described | {"coefficients": c, "intercept": i}) for c, i in outputs]
    return tuple(_forms.ClassScorer(list(form), list(declaration.classes)) for form in zip(*single, strict=True))


def _types(declaration: Declaration, described: dict[str, Any]) -> dict[str, str]:
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


def _check_array(declaration: Declaration) -> None:
    if declaration.vector is None:
        columns = ", ".join(declaration.columns)
        raise ValueError(
            f"the model was trained on columns, not on an array; pass a row, or JSON, with the columns {columns}"
        )


def _of_rows(declaration: Declaration, described: dict[str, Any]) -> tuple[Scorer, ...]:
    types, ending = _types(declaration, described), _ending(declaration)
    weights, intercept = _of_coordinates(declaration, described["coefficients"], described["intercept"])
    crossing = _crossing(declaration, weights, types, ">")
    binary = _forms.RecordScorer(_columns(declaration, weights, types, ">"), intercept, ending, crossing)
    plain = all(types[column] in _STORED_PLAIN for column in declaration.columns)
    if compiled is None or not plain or described["dropped"]:
        return (binary,)
    lengths, aligns = zip(*((length, align) for _, length, align in described["columns"].values()), strict=True)
    columns, crossing = _columns(declaration, weights, types, "<"), _crossing(declaration, weights, types, "<")
    return binary, compiled.StoredRowScorer(columns, intercept, lengths, "".join(aligns), ending, crossing)


def _of_array(declaration: Declaration, described: dict[str, Any]) -> tuple[Scorer, ...]:
    _check_array(declaration)
    return (_forms.VectorScorer(described["coefficients"], described["intercept"], _ending(declaration)),)


def _ending(declaration: Declaration) -> Ending:
    """Return the ending of a model's decisions: those of earlier versions are neither divided nor clipped."""
    if declaration.encoding == UNIT:
        constant, vector = float(declaration.intercept), declaration.vector
        return Ending((constant * constant_of(vector.length)) ** 2, vector.norm_bound) if vector else Ending(constant)
    if declaration.encoding == CENTRED and declaration.label_bounds:
        return Ending(least=declaration.label_bounds[0], most=declaration.label_bounds[1])
    return _PLAIN


def _affine(declaration: Declaration, feature: Numeric) -> tuple[float, float]:
    """Return the map of positions to coordinates if the norm is needed, else the identity; weights multiply these."""
    return feature.affine(UNIT) if declaration.encoding == UNIT and not feature.bins else (0.0, 1.0)


def _of_coordinates(declaration: Declaration, coefficients: list[float], intercept: float) -> tuple[list[float], float]:
    """Return weights and intercept for the coordinates of `_affine`, from those in the units of the columns."""
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


def _crossing(declaration: Declaration, weights: list[float], types: dict[str, str], order: str) -> Crossing:
    """Return the pairs of a declaration, from the weights of all coordinates; their cells are the last ones."""
    sides = list(dict.fromkeys(side for pair in declaration.products for side in (pair.first, pair.second)))
    pairs, first = [], len(weights) - sum(pair.width for pair in declaration.products)
    for pair in declaration.products:
        cells = tuple(weights[first : first + pair.width])
        pairs.append(Cells(sides.index(pair.first), sides.index(pair.second), cells))
        first += pair.width
    return Crossing(tuple(_group_of(side, types, order) for side in sides), tuple(pairs))


def _group_of(side: Side, types: dict[str, str], order: str) -> Group:
    """Return how the values of a column of a pair have a group."""
    column, feature = side.feature.column, side.feature
    place = list(types).index(column)
    if isinstance(feature, Numeric):
        return Group(place, side.groups, feature.edges)
    binary = [_binary(category, types[column], order) for category in feature.categories]
    return Group(place, side.groups, lookup=dict(zip(binary, side.group_of_category, strict=True)))


def _kind(column: str, types: dict[str, str], kinds: dict[str, str]) -> str:
    """Return how a column is read."""
    type_name = "enum" if types[column].startswith("enum ") else types[column]
    if type_name not in kinds:
        raise ValueError(f"column {column!r} of the row is {types[column]}; it must be one of {', '.join(kinds)}")
    return kinds[type_name]


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
