"""Prediction with a released model: decisions for arrays and for rows, inside the server.

`dbdp.predict` is called once for each row, so each scorer has a compiled form in the kernel; the
classes here are the reference, and the fallback where there is no compiler.
"""

import json
import math
import operator
import struct
import sys
from collections.abc import Callable
from typing import Any

from dbdp.datasets import Declaration, declare

_ARRAY_HEADER = struct.Struct("<5i")
_FLOAT4 = 700  # PostgreSQL's number of the type
_NUMBER_FORMATS = {
    "smallint": ("h", "i"),
    "integer": ("i", "i"),
    "bigint": ("q", "i"),
    "real": ("f", "f"),
    "double precision": ("d", "f"),
    "boolean": ("?", "i"),
}
_STORED_PLAIN = (
    "smallint",
    "integer",
    "bigint",
    "real",
    "double precision",
    "boolean",
    "text",
    "character varying",
    "character",
)
Column = tuple[str, tuple[float, float, float], Any]
Scorer = Callable[[bytes], float | None]
_IGNORED: Column = ("-", (0.0, 0.0, 0.0), None)


class VectorScorer:
    """intercept + ⟨weights, array⟩ from the bytes of a float8[] or float4[]; None where it is no such array.

    An array of another shape, with a null, or with a value that is not finite gives None.
    """

    def __init__(self, weights: list[float], intercept: float) -> None:
        self._weights = weights
        self._intercept = intercept

    def __call__(self, features: bytes) -> float | None:
        if len(features) < _ARRAY_HEADER.size:
            return None
        dimensions, nulls, element, length, _ = _ARRAY_HEADER.unpack_from(features)
        elements = struct.Struct(f"<{len(self._weights)}{'f' if element == _FLOAT4 else 'd'}")
        whole = dimensions == 1 and not nulls and length == len(self._weights)
        if not whole or len(features) != _ARRAY_HEADER.size + elements.size:
            return None
        values = elements.unpack_from(features, _ARRAY_HEADER.size)
        decision = self._intercept + sum(map(operator.mul, self._weights, values))
        return decision if math.isfinite(decision) else None


class RecordScorer:
    """intercept + Σ contribution of each column, from the binary form of a row (`record_send`).

    Columns are (kind, (weight, lower, upper), lookup), in the row's order. Kinds: `-` ignored, `i`
    whole number, `f` float, `c` number that `lookup` decodes, `t` category in `lookup`, `b` category
    padded with blanks. A null or not finite feature gives None; numbers are clipped to their bounds.
    """

    def __init__(self, columns: list[Column], intercept: float) -> None:
        self._columns = columns
        self._intercept = intercept

    def __call__(self, record: bytes) -> float | None:
        decision, place = self._intercept, 4
        for kind, (weight, lower, upper), lookup in self._columns:
            (size,) = struct.unpack_from(">i", record, place + 4)
            place += 8
            if size < 0:
                if kind != "-":
                    return None
                continue
            value = record[place : place + size]
            place += size
            if kind in "tb":
                decision += lookup.get(value.rstrip(b" ") if kind == "b" else value, 0.0)
            elif kind != "-":
                number = lookup(value) if kind == "c" else _plain_number(value, kind)
                if not math.isfinite(number):
                    return None
                decision += weight * min(max(number, lower), upper)
        return decision


def _plain_number(value: bytes, kind: str) -> float:
    if kind == "f":
        return float(struct.unpack(">d" if len(value) == 8 else ">f", value)[0])
    return float(int.from_bytes(value, "big", signed=len(value) > 1))


def decode_numeric(value: bytes) -> float:
    """Return the float nearest to a `numeric` in binary form: base-10000 digits, weight, sign."""
    count, weight, sign, _ = struct.unpack_from(">hhHH", value)
    if sign not in (0x0000, 0x4000):
        return math.nan  # NaN and the infinities
    digits = struct.unpack_from(f">{count}h", value, 8)
    number = 0
    for digit in digits:
        number = number * 10000 + digit
    exponent = 4 * (weight - count + 1)
    magnitude = float(f"{number}e{exponent}")
    return -magnitude if sign else magnitude


class Scorers:
    """The scorers of this session, made when a model is first used; released models never change.

    A parallel worker cannot ask the server for the model through PL/Python. So `decide` and `predict`
    give None while there is no scorer, and the caller then passes the model to `learn`. The compiled
    form also reads rows as they are stored, in half the time; here `decide_stored` gives None, and the
    caller goes on with the binary form.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Scorer] = {}

    def add(self, model: int, row_type: int, scorer: Scorer, _stored: Scorer | None = None) -> None:
        """Keep the scorer of a model for rows of a type."""
        self._known[model, row_type] = scorer

    def knows(self, model: int, row_type: int) -> bool:
        """Return whether there is a scorer."""
        return (model, row_type) in self._known

    def decide(self, model: int, row_type: int, features: bytes) -> float | None:
        """Return the decision value, or None; `row_type` is 0 for arrays."""
        scorer = self._known.get((model, row_type))
        return None if scorer is None else scorer(features)

    def predict(self, model: int, row_type: int, features: bytes) -> bool | None:
        """Return whether the decision is above 0, or None."""
        decision = self.decide(model, row_type, features)
        return None if decision is None else decision > 0

    def decide_stored(self, _model: int, _row: bytes) -> None:
        """Return None: only the compiled form reads stored rows."""

    predict_stored = decide_stored


try:
    from dbdp import _scorer as compiled
except ImportError:  # built without a C compiler
    compiled = None

_forms: Any = compiled or sys.modules[__name__]
_scorers = _forms.Scorers()
knows = _scorers.knows
decide, predict = _scorers.decide, _scorers.predict
decide_stored, predict_stored = _scorers.decide_stored, _scorers.predict_stored


def learn(model: int, row_type: int, description: str | None) -> bool:
    """Make the scorers of a model from dbdp.model_description; return True.

    Raises
    ------
    ValueError
        If there is no such model, or it does not fit such rows.
    """
    if description is None:
        raise ValueError(f"model {model} does not exist; see dbdp.models")
    described = json.loads(description)
    declaration = declare(**described["declaration"])
    make = _of_rows if row_type else _of_array
    _scorers.add(model, row_type, *make(declaration, described))
    return True


def _of_rows(declaration: Declaration, described: dict[str, Any]) -> tuple[Scorer, ...]:
    stored = described["columns"] or {}
    types = {column: type_name for column, (type_name, _, _) in stored.items()}
    missing = [column for column in declaration.columns if column not in types]
    if missing or declaration.vector:
        raise ValueError(
            f"the row does not have the columns {', '.join(declaration.columns)} as the model wants them; "
            "give a row of a table or view that has them, or the array that the model was trained on"
        )
    weights, intercept = described["coefficients"], described["intercept"]
    binary = _forms.RecordScorer(_columns(declaration, weights, types, ">"), intercept)
    plain = all(types[column] in _STORED_PLAIN for column in declaration.columns)
    if compiled is None or not plain or described["dropped"]:
        return (binary,)
    lengths, aligns = [length for _, length, _ in stored.values()], "".join(align for _, _, align in stored.values())
    return binary, compiled.StoredRowScorer(_columns(declaration, weights, types, "<"), intercept, lengths, aligns)


def _of_array(declaration: Declaration, described: dict[str, Any]) -> tuple[Scorer, ...]:
    if declaration.vector is None:
        columns = ", ".join(declaration.columns)
        raise ValueError(f"the model was trained on columns, not on an array; give a row with the columns {columns}")
    return (_forms.VectorScorer(described["coefficients"], described["intercept"]),)


def _columns(declaration: Declaration, weights: list[float], types: dict[str, str], order: str) -> list[Column]:
    """Return the columns in the row's own order, from weights in the declaration's; `order` of bytes."""
    remaining = iter(weights)
    used: dict[str, Column] = {}
    for numeric in declaration.numeric:
        kind = "c" if types[numeric.column] == "numeric" else _NUMBER_FORMATS[types[numeric.column]][1]
        decode = decode_numeric if kind == "c" else None
        used[numeric.column] = (kind, (next(remaining), numeric.lower, numeric.upper), decode)
    for categorical in declaration.categorical:
        type_name = types[categorical.column]
        lookup = {_binary(category, type_name, order): next(remaining) for category in categorical.categories}
        used[categorical.column] = ("b" if type_name == "character" else "t", (0.0, 0.0, 0.0), lookup)
    return [used.get(column, _IGNORED) for column in types]


def _binary(category: str, type_name: str, order: str) -> bytes:
    """Return a category as the bytes of its column's type."""
    if type_name == "boolean":
        return b"\x01" if category == "true" else b"\x00"
    if type_name in _NUMBER_FORMATS:
        return struct.pack(order + _NUMBER_FORMATS[type_name][0], json.loads(category))
    return category.encode()
