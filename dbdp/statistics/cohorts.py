"""Cohorts: a public condition on declared columns, as data; a row outside counts as none (privacy.md §25.6).

A condition is [lower, upper] of a number, both included, or some categories. All of them must hold, and NULL meets
none.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.checks import is_number
from dbdp.statistics.coded_columns import FIRST, Code, NumberCode, code_of


@dataclass(frozen=True)
class Cohort:
    """The rows that meet each condition; without conditions all rows."""

    codes: tuple[Code, ...] = ()
    conditions: tuple[tuple[Any, ...], ...] = ()  # (lower, upper) of a number, or some of the categories

    @classmethod
    def of(cls, stated: Any, codes: Sequence[Code], dataset: str) -> "Cohort":
        """Return the cohort of an object {column: condition}; raise ValueError unless it is one."""
        if stated is None:
            return cls()
        if not isinstance(stated, Mapping) or not stated:
            raise ValueError(
                f'cohort is {stated!r}; give an object such as {{"age": [18, 65], "ward": ["A", "B"]}}, or leave it out'
            )
        named = tuple(code_of(codes, column, dataset) for column in stated)
        return cls(named, tuple(_condition(code, stated[code.column]) for code in named))

    def contains(self, values: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return which rows are in the cohort, by the values and the codes of its columns, shapes (n, columns)."""
        inside = np.ones(len(codes), bool)
        for place, (code, condition) in enumerate(zip(self.codes, self.conditions, strict=True)):
            if isinstance(code, NumberCode):
                inside &= (values[:, place] >= condition[0]) & (values[:, place] <= condition[1])
            else:
                inside &= np.isin(codes[:, place], [FIRST + code.categories.index(each) for each in condition])
        return inside

    @property
    def as_data(self) -> dict[str, Any]:
        """The cohort for a receipt; empty for all rows."""
        named = {code.column: list(each) for code, each in zip(self.codes, self.conditions, strict=True)}
        return {"cohort": named} if named else {}


def _is_finite(value: Any) -> bool:
    """Return whether a value is a number that float8 has."""
    return is_number(value) and abs(value) <= sys.float_info.max


def _condition(code: Code, stated: Any) -> tuple[Any, ...]:
    """Return a valid condition on a column; raise ValueError otherwise."""
    listed = list(stated) if isinstance(stated, Sequence) and not isinstance(stated, str) else []
    if isinstance(code, NumberCode):
        if len(listed) != 2 or not all(map(_is_finite, listed)) or not listed[0] <= listed[1]:
            raise ValueError(
                f"cohort has {code.column!r}: {repr(stated)[:100]}, and the column is a number; give finite numbers "
                "[lower, upper], both included"
            )
        return float(listed[0]), float(listed[1])
    if not listed or set(map(str, listed)) - set(code.categories) or not all(isinstance(each, str) for each in listed):
        shown = ", ".join(code.categories[:20])
        raise ValueError(f"cohort has {code.column!r}: {stated!r}; give a list of some of its categories: {shown}")
    return tuple(listed)
