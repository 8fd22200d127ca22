"""Codes of synthetic rows as JSON, with the names and types of a table's columns.

Shapes: codes (rows, columns) are numbers of levels.
"""

import json
import math
from collections.abc import Iterator, Sequence

import numpy as np

from dbdp.controller.statistics.summary_views.viewed_columns import OTHER
from dbdp.learning.rows.features import CATEGORY, OUTSIDE, Categorical, Numeric
from dbdp.registry.declarations import Declaration

_WHOLE = ("smallint", "integer", "bigint")
_LARGEST = {"smallint": 2.0**15 - 1, "integer": 2.0**31 - 1, "real": 3.4e38}  # of types that declared bounds may exceed
_MOST = 2.0**63 - 1024  # of other whole numbers
_DIGITS = 3  # of a number's place in its bin


def written(declaration: Declaration, types: dict[str, str], codes: np.ndarray, random: np.random.Generator) -> str:
    """Return rows as a JSON array of objects, which json_populate_recordset reads."""
    names = [*declaration.columns, declaration.label]
    columns = [
        _texts(declaration, types.get(name, ""), name, codes[:, each], random) for each, name in enumerate(names)
    ]
    keys = [json.dumps(name, ensure_ascii=False) for name in names]
    return "[" + ",\n ".join(_objects(keys, columns)) + "]"


def _objects(keys: Sequence[str], columns: Sequence[Sequence[str]]) -> Iterator[str]:
    for values in zip(*columns, strict=True):
        yield "{" + ", ".join([f"{key}: {value}" for key, value in zip(keys, values, strict=True)]) + "}"


def _texts(
    declaration: Declaration, type_name: str, name: str, codes: np.ndarray, random: np.random.Generator
) -> list[str]:
    """Return the JSON text of each value of a column."""
    parts = {each.column: each for each in declaration.parts}
    part = declaration.binned_label if name == declaration.label else parts[name]
    if isinstance(part, Numeric):
        return _numbers(part, type_name, codes, random)
    if isinstance(part, Categorical):
        names = [*part.categories, *[None] * (part.null == CATEGORY)]
        last = None if part.null == OUTSIDE or type_name != "text" else OTHER
        levels = [_value(each, type_name) for each in (*names, last)]
    else:
        levels = _of_label(declaration, type_name)
    return [levels[code] for code in codes.tolist()]


def _of_label(declaration: Declaration, type_name: str) -> list[str]:
    if declaration.classes:
        return [_value(each, type_name) for each in declaration.classes]
    positive, negative = declaration.positive or "", declaration.negative
    if negative is None and not type_name.startswith("enum "):  # of which other values are not declared
        opposites = {"boolean": "false" if positive in ("true", "t") else "true", "text": OTHER}
        negative = opposites.get(type_name, "0" if positive != "0" else "1") if type_name else OTHER
    return [_value(positive, type_name), _value(negative, type_name)]


def _value(text: str | None, type_name: str) -> str:
    """Return a value as JSON: a text that the column's type reads, as PostgreSQL does for every type."""
    if type_name == "boolean" and text is not None:
        return json.dumps(text in ("true", "t"))
    return json.dumps(text, ensure_ascii=False)


def _numbers(part: Numeric, type_name: str, codes: np.ndarray, random: np.random.Generator) -> list[str]:
    """Return numbers that are uniform in their bins on the column's scale, as far as its type has them; or null."""
    ends = np.array([part.lower, *part.edges, part.upper])
    is_number = codes < part.bins
    bins = np.minimum(codes, part.bins - 1)
    is_whole = _is_whole(part, type_name)
    if is_whole:
        first = np.ceil(ends[:-1])
        last = np.append(np.ceil(ends[1:-1]) - 1, np.floor(ends[-1]))
        first, last = np.minimum(first, np.floor(ends[1:])), np.maximum(first, last)
        drawn = first[bins] + np.floor(random.random(len(codes)) * (last - first + 1)[bins])
        drawn = np.minimum(drawn, last[bins])
    else:
        drawn = _within(part, ends, bins, random)
    largest = _LARGEST.get(type_name, _MOST if is_whole else math.inf)
    drawn = np.clip(drawn, -largest, largest)
    values = (drawn.astype(np.int64) if is_whole else drawn).tolist()
    if type_name == "boolean":
        values = [bool(value) for value in values]
    return [json.dumps(value) if shown else "null" for value, shown in zip(values, is_number.tolist(), strict=True)]


def _is_whole(part: Numeric, type_name: str) -> bool:
    """Return whether a column has whole numbers; without a known type if each bin has one."""
    if type_name:
        return type_name in (*_WHOLE, "boolean")
    return part.lower.is_integer() and part.upper.is_integer() and part.bins == part.upper - part.lower + 1


def _within(part: Numeric, ends: np.ndarray, bins: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return numbers within their bins, rounded to a few digits of the bin's width."""
    positions = np.array([part.position(end) for end in ends.tolist()])
    drawn = positions[bins] + random.random(len(bins)) * np.diff(positions)[bins]
    if part.bend is not None:
        centre, factor = part.bend
        drawn = centre + np.sinh(drawn) / factor
    decimals = [_DIGITS - 1 - math.floor(math.log10(width)) for width in np.diff(ends).tolist()]
    steps = np.array([10.0**-each for each in decimals])[bins]
    rounded = np.round(np.round(drawn / steps) * steps, max(0, min(15, *decimals)) if decimals else 0)
    return np.clip(rounded, part.lower, part.upper)
