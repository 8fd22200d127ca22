"""Declared columns as codes: a small whole number for each value, by public facts alone (privacy.md §11.1, §25.1).

A code is EMPTY in a slot without a row, NULL, OTHER for a value that is not declared, or FIRST and above: a category,
or the cell of a number. The first and the last cell of a number are those of the values outside its bounds. NaN is
NULL, and an infinity is outside. Shapes: values and codes (n,).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dbdp.checks import nearest
from dbdp.learning.rows.features import ASINH, LINEAR, Categorical, Numeric
from dbdp.statistics import _sums as compiled

EMPTY, NULL, OTHER, FIRST = 0, 1, 2, 3
NO_VALUE, NO_CATEGORY, EVERY = "(null)", "(other)", "(all)"  # as results write them
MOST_CELLS = 1024  # of a number, with the two of values outside
_WIDE = 1e4  # bounds so far apart span several orders of magnitude
_WHOLE = ("smallint", "integer", "bigint", "boolean")


@dataclass(frozen=True)
class NumberCode:
    """A number within bounds: its cells, and its position t in [-1, 1]."""

    column: str
    lower: float
    upper: float
    inner: int  # cells between the bounds
    is_whole: bool = False  # whether each whole number has a cell of its own
    scale: str = LINEAR  # of the cells; the position is linear

    @classmethod
    def of(cls, feature: Numeric, type_name: str, most: int = MOST_CELLS) -> "NumberCode":
        """Return the finest code of a declared number with at most so many cells; whole numbers have one each."""
        bounds = feature.column, feature.lower, feature.upper
        values, ends = feature.upper - feature.lower + 1, (feature.lower, feature.upper)
        if type_name in _WHOLE and all(map(float.is_integer, ends)) and values <= most - 2:
            return cls(*bounds, int(values), is_whole=True)
        return cls(*bounds, most - 2, scale=ASINH if feature.upper - feature.lower >= _WIDE else feature.scale)

    @property
    def cells(self) -> int:
        """Number of cells, with the two of values outside."""
        return self.inner + 2

    @property
    def codes(self) -> int:
        """Number of codes."""
        return FIRST + self.cells

    @cached_property
    def edges(self) -> np.ndarray:
        """Where the inner cells begin, and the last one ends, shape (inner + 1,), in the column's units."""
        if self.is_whole:
            return self.lower - 0.5 + np.arange(self.inner + 1)
        between = replace(Numeric(self.column, self.lower, self.upper, scale=self.scale), bins=self.inner).edges
        return np.array([self.lower, *between, self.upper])

    @property
    def reach(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest position in each cell, shapes (cells,)."""
        if self.is_whole:
            values = self.positions(self.lower - 1 + np.arange(self.cells))
            return values, values
        inside = self.positions(self.edges)
        return np.concatenate([[-1.0], inside[:-1], [1.0]]), np.concatenate([[-1.0], inside[1:], [1.0]])

    @property
    def middle(self) -> float:
        """The number at the position 0."""
        return self.lower / 2 + self.upper / 2

    @property
    def half(self) -> float:
        """Half of the width of the bounds: the length of a position of 1."""
        return (self.upper - self.lower) / 2

    def coded(self, values: np.ndarray) -> np.ndarray:
        """Return the codes of numbers; a cell has its lower edge, and the last inner one the upper bound too."""
        found: np.ndarray = compiled.cells(values, self._borders, FIRST, NULL)
        return found

    @cached_property
    def _borders(self) -> np.ndarray:
        """The least number of each cell but the first, shape (inner + 1,)."""
        return np.append(self.edges[:-1], np.nextafter(self.edges[-1], np.inf))

    def positions(self, values: np.ndarray) -> np.ndarray:
        """Return the positions of numbers, clipped to the bounds; 0 for NaN."""
        found: np.ndarray = compiled.positions(values, self.lower, self.upper, self.middle, self.half)
        return found


@dataclass(frozen=True)
class CategoryCode:
    """A column of declared categories."""

    column: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse a category that results could not tell from theirs."""
        for word in {NO_VALUE, NO_CATEGORY, EVERY} & set(self.categories):
            raise ValueError(
                f"column {self.column!r} has a category {word!r}, which statistics write for rows without a declared "
                "one; rename it in the table, and declare it with dbdp.redeclare"
            )

    @classmethod
    def of(cls, feature: Categorical) -> "CategoryCode":
        """Return the code of a declared column of categories."""
        return cls(feature.column, feature.categories)

    @property
    def codes(self) -> int:
        """Number of codes."""
        return FIRST + len(self.categories)

    @property
    def words(self) -> list[str]:
        """A word for each code from NULL on."""
        return [NO_VALUE, NO_CATEGORY, *self.categories]

    def coded(self, values: np.ndarray, numbers: Sequence[float], absent: float) -> np.ndarray:
        """Return the codes of values that are stored as the numbers of the categories, or `absent` for NULL."""
        known = np.array([absent, *numbers])
        order = np.argsort(known)
        codes = np.array([NULL, *range(FIRST, FIRST + len(numbers))])
        found: np.ndarray = compiled.matches(values, known[order], codes[order], OTHER)
        return found


Code = NumberCode | CategoryCode


def as_data(codes: Sequence[Code]) -> list[dict[str, Any]]:
    """Return codes as data, for a receipt."""
    return [asdict(code) for code in codes]


def from_data(stored: Sequence[Mapping[str, Any]]) -> list[Code]:
    """Return the codes that `as_data` wrote."""
    return [
        CategoryCode(each["column"], tuple(each["categories"])) if "categories" in each else NumberCode(**each)
        for each in stored
    ]


def code_of(codes: Sequence[Code], column: str, dataset: str) -> Code:
    """Return the code of a column; raise ValueError for one that is not declared."""
    known = {code.column: code for code in codes}
    if column not in known:
        raise ValueError(
            f"column {column!r} of dataset {dataset!r} is not declared; choose among {', '.join(known)}, or declare it "
            f"with dbdp.redeclare{nearest(column, list(known))}"
        )
    return known[column]
