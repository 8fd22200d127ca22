"""Prediction with a released model: decisions for arrays and for rows, inside the server.

`dbdp.predict` is called once for each row, so each scorer has a compiled form in the kernel; the
classes here are the reference, and the fallback where there is no compiler.
"""

import json
import math
import operator
import struct
from collections.abc import Callable
from typing import Any

from dbdp.datasets import Declaration, declare

_ARRAY_HEADER = struct.Struct("<5i")
_FORMATS = {"<f8": "d", "<f4": "f"}
_NUMBER_FORMATS = {
    "smallint": (">h", "i"),
    "integer": (">i", "i"),
    "bigint": (">q", "i"),
    "real": (">f", "f"),
    "double precision": (">d", "f"),
    "boolean": (">?", "i"),
}
Column = tuple[str, tuple[float, float, float], Any]
Scorer = Callable[[bytes], float | None]
_IGNORED: Column = ("-", (0.0, 0.0, 0.0), None)


class VectorScorer:
    """intercept + ⟨weights, array⟩ from the array's own bytes; None where it is no such array.

    An array of another shape, with a null, or with a value that is not finite gives None.
    """

    def __init__(self, weights: list[float], intercept: float, element: str) -> None:
        self._weights = weights
        self._intercept = intercept
        self._elements = struct.Struct(f"<{len(weights)}{_FORMATS[element]}")

    def __call__(self, features: bytes) -> float | None:
        if len(features) != _ARRAY_HEADER.size + self._elements.size:
            return None
        dimensions, nulls, _, length, _ = _ARRAY_HEADER.unpack_from(features)
        if dimensions != 1 or nulls or length != len(self._weights):
            return None
        values = self._elements.unpack_from(features, _ARRAY_HEADER.size)
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


try:
    from dbdp import _scorer

    _vector_scorer: Callable[..., Any] = _scorer.VectorScorer
    _record_scorer: Callable[..., Any] = _scorer.RecordScorer
except ImportError:  # built without a C compiler
    _vector_scorer, _record_scorer = VectorScorer, RecordScorer


class Scorers:
    """The scorers of this session, made when a model is first used; released models never change.

    A parallel worker cannot ask the server for the model through PL/Python. So `decide` gives None
    while it has no scorer, and the caller then passes the model to `learn`.
    """

    def __init__(self) -> None:
        self._scorers: dict[tuple[int, Any], Scorer] = {}

    def decide(self, model: int, kind: str | int, data: bytes) -> float | None:
        """Return the decision value, or None; `kind` is an array's element or the type of a row."""
        scorer = self._scorers.get((model, kind))
        return None if scorer is None else scorer(data)

    def learn(self, model: int, kind: str | int, description: str | None) -> None:
        """Make the scorer of a model from dbdp.model_description.

        Raises
        ------
        ValueError
            If there is no such model, or it does not fit such rows.
        """
        if description is None:
            raise ValueError(f"model {model} does not exist; see dbdp.models")
        described = json.loads(description)
        declaration = declare(**described["declaration"])
        scorer = _of_array(declaration, described, kind) if isinstance(kind, str) else _of_rows(declaration, described)
        self._scorers[model, kind] = scorer


def _of_rows(declaration: Declaration, described: dict[str, Any]) -> Scorer:
    types = described["columns"] or {}
    missing = [column for column in declaration.columns if column not in types]
    if missing or declaration.vector:
        raise ValueError(
            f"the row does not have the columns {', '.join(declaration.columns)} as the model wants them; "
            "give a row of a table or view that has them, or the array that the model was trained on"
        )
    return _record_scorer(_columns(declaration, described["coefficients"], types), described["intercept"])


def _of_array(declaration: Declaration, described: dict[str, Any], element: str) -> Scorer:
    if declaration.vector is None:
        columns = ", ".join(declaration.columns)
        raise ValueError(f"the model was trained on columns, not on an array; give a row with the columns {columns}")
    return _vector_scorer(described["coefficients"], described["intercept"], element)


def _columns(declaration: Declaration, weights: list[float], types: dict[str, str]) -> list[Column]:
    """Return the columns of a record in the row's own order, from weights in the declaration's."""
    remaining = iter(weights)
    used: dict[str, Column] = {}
    for numeric in declaration.numeric:
        kind = "c" if types[numeric.column] == "numeric" else _NUMBER_FORMATS[types[numeric.column]][1]
        decode = decode_numeric if kind == "c" else None
        used[numeric.column] = (kind, (next(remaining), numeric.lower, numeric.upper), decode)
    for categorical in declaration.categorical:
        type_name = types[categorical.column]
        lookup = {_binary(category, type_name): next(remaining) for category in categorical.categories}
        used[categorical.column] = ("b" if type_name == "character" else "t", (0.0, 0.0, 0.0), lookup)
    return [used.get(column, _IGNORED) for column in types]


def _binary(category: str, type_name: str) -> bytes:
    """Return a category in the binary form of its column's type."""
    if type_name == "boolean":
        return b"\x01" if category == "true" else b"\x00"
    if type_name in _NUMBER_FORMATS:
        return struct.pack(_NUMBER_FORMATS[type_name][0], json.loads(category))
    return category.encode()


_scorers = Scorers()
decide = _scorers.decide


def decide_described(model: int, kind: str | int, features: bytes | None, description: str | None) -> float | None:
    """Decide with a model whose description is at hand: the first row of a session."""
    _scorers.learn(model, kind, description)
    return None if features is None else decide(model, kind, features)
