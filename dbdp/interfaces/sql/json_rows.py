"""Rows as JSON, for prediction: converted to the bytes of a row, or of an array, that a scorer reads.

A row of a subquery has no named type, so its columns cannot be looked up; `to_jsonb` of it has their names.
"""

import json
import math
import struct
from collections.abc import Callable
from typing import Any

from dbdp import checks
from dbdp.learning.rows.features import REQUIRED
from dbdp.registry.declarations import Declaration

TYPE = 3802  # PostgreSQL's OID of jsonb, in place of a row's type
_NUMBER, _CATEGORY = ("double precision", 8, "d"), ("text", -1, "i")
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # as to_jsonb writes them
_LARGEST = 1e300  # as of a numeric in a row
_FLOAT8 = 701


class _Number(str):
    """A number as JSON has it: a category may be one too."""

    __slots__ = ()


def columns(declaration: Declaration) -> dict[str, tuple[str, int, str]]:
    """Return the columns of the rows that `encoder` makes: type, length and alignment of each."""
    numbers = {feature.column: _NUMBER for feature in declaration.numeric}
    return numbers | {feature.column: _CATEGORY for feature in declaration.categorical}


def encoder(declaration: Declaration) -> Callable[[bytes], bytes | None]:
    """Return the function from JSON to the bytes of an array or of a row; None for JSON that does not fit."""
    refusing = _refusing(declaration)

    def encode(features: bytes) -> bytes | None:
        try:
            return refusing(features)
        except ValueError:
            return None

    return encode


def checker(declaration: Declaration) -> Callable[[bytes | None], None]:
    """Return the function that raises ValueError for JSON that does not fit the declaration."""
    refusing = _refusing(declaration)

    def check(features: bytes | None) -> None:
        if features is not None:
            refusing(features)

    return check


def _refusing(declaration: Declaration) -> Callable[[bytes], bytes | None]:
    """Return the function from JSON to the bytes of an array, if the declaration has one, or of a row."""
    if vector := declaration.vector:
        return lambda features: _array(vector.column, vector.length, _parsed(features))
    known = [None] * len(declaration.numeric) + [frozenset(each.categories) for each in declaration.categorical]
    expected = list(zip(columns(declaration), known, strict=True))
    required = [feature.column for feature in declaration.parts if feature.null == REQUIRED]
    return lambda features: _row(expected, required, _parsed(features))


def _parsed(features: bytes) -> Any:
    try:
        return json.loads(features, parse_int=_Number, parse_float=_Number)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply; pass an object with the model's columns") from None


def _array(column: str, length: int, value: Any) -> bytes | None:
    """Return the bytes of a float8[]; None for a null, or an element that is not a finite number."""
    if isinstance(value, dict):
        if column not in value:
            raise _without([column], [column])
        value = value[column]
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"the JSON {_short(value)} is not an array of {length} numbers, nor an object with {column!r}")
    if len(value) != length:
        raise ValueError(checks.wrong_length(len(value), length))
    if wrong := [each for each in value if not isinstance(each, _Number) and each not in (None, *_NOT_FINITE)]:
        raise ValueError(f"an element of the array is {_short(wrong[0])}; each must be a number")
    if not all(isinstance(each, _Number) for each in value):
        return None
    return struct.pack(f"<5i{len(value)}d", 1, 0, _FLOAT8, len(value), 1, *map(_clipped, value))


def _row(expected: list[tuple[str, frozenset[str] | None]], required: list[str], value: Any) -> bytes:
    """Return the binary form of a row with the expected columns, each with its categories; None for a number's.

    An absent column is a null, unless it is a required one, or all are absent.
    """
    names = [column for column, _ in expected]
    if not isinstance(value, dict) or not any(name in value for name in names):
        raise _without(names, names)
    if missing := [name for name in required if name not in value]:
        raise _without(missing, names)
    pieces = [struct.pack(">i", len(expected))]
    for column, categories in expected:
        cell = value.get(column)
        cell = _number(column, cell) if categories is None else _category(categories, cell)
        pieces.append(struct.pack(">ii", 0, -1 if cell is None else len(cell)) + (cell or b""))
    return b"".join(pieces)


def _without(missing: list[str], names: list[str]) -> ValueError:
    return ValueError(
        f"the JSON does not have the {checks.columns(missing)} of the model; pass an object that has "
        f"{', '.join(names)}, such as to_jsonb of a row"
    )


def _short(value: Any) -> str:
    return repr(str(value)[:40])


def _number(column: str, value: Any) -> bytes | None:
    """Return a float8 in binary form; NaN for one that is not finite, None for a null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return struct.pack(">d", value)
    if isinstance(value, _Number):
        return struct.pack(">d", _clipped(value))
    if value in _NOT_FINITE:
        return struct.pack(">d", math.nan)
    raise ValueError(f"column {column!r} of the JSON is {_short(value)}; it must be a number")


def _clipped(value: _Number) -> float:
    return min(max(float(value), -_LARGEST), _LARGEST)


def _category(categories: frozenset[str], value: Any) -> bytes | None:
    """Return a category's text; without trailing blanks, which char(n) adds, unless it is known with them."""
    if value is None:
        return None
    text = json.dumps(value) if isinstance(value, bool | list | dict) else str(value)
    return (text if text in categories else text.rstrip(" ")).encode()
