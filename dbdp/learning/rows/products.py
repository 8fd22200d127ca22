"""Packed rows in other coordinates: those of their columns, and products of functions of two columns each.

privacy.md §24.11. All of it follows from public facts and from earlier releases. A row's coordinates depend on that row
only, to the last bit: each is a sum over the row's own products, in one order. Shapes: rows in places (n, stride),
coordinates (p, n), of which the first a are those of columns.
"""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, ColumnBlock, RowBlocks, row_blocks_from

_UPWARDS = 2.0**-16  # of a bin: above the rounding of a packed row, so that a number at an edge is in the upper bin


@dataclass(frozen=True)
class GroupedBlock:
    """A column in a pair: the groups of its values."""

    place: int  # of its block among those of the row
    groups: int
    of_category: tuple[int, ...] = ()  # the group of each category; empty for a number


@dataclass(frozen=True)
class Candidate:
    """A pair of columns that a training may choose."""

    names: tuple[str, str]
    first: GroupedBlock
    second: GroupedBlock


@dataclass(frozen=True)
class GroupTable:
    """A column with a table of functions of its groups."""

    first: int  # place of its first coordinate in a packed row
    block: ColumnBlock
    grouped: GroupedBlock
    table: np.ndarray  # (groups, k): the values of k functions in each group

    def values(self, features: np.ndarray) -> np.ndarray:
        """Return the functions (k, n) of a packed row's features times the radius (n, d); 0 for an undeclared value."""
        own = features[:, self.first : self.first + self.block.width]
        return np.vstack([self.table, np.zeros(self.table.shape[1])])[self._groups(own)].T

    def _groups(self, own: np.ndarray) -> np.ndarray:
        """Return each row's group, -1 without one."""
        if self.block.kind == CURVE:
            position = (own * np.arange(self.block.width)).sum(axis=1) / (self.block.width - 1)
            return np.clip(position * self.grouped.groups + _UPWARDS, 0, self.grouped.groups - 1).astype(np.int64)
        if self.block.kind == CATEGORY:
            is_there = own.max(axis=1) > self.block.size / 2
            return np.where(is_there, np.array(self.grouped.of_category)[own.argmax(axis=1)], -1)
        return (own[:, 0] > (self.block.least + self.block.size) / 2).astype(np.int64)

    def as_data(self) -> dict[str, Any]:
        """Return it as data."""
        block = [self.block.kind, self.block.width, self.block.least, self.block.size]
        grouped = [self.grouped.place, self.grouped.groups, list(self.grouped.of_category)]
        return {"first": self.first, "block": block, "grouped": grouped, "table": self.table.tolist()}

    @classmethod
    def of(cls, data: dict[str, Any]) -> "GroupTable":
        """Return the side of `as_data`."""
        place, groups, of_category = data["grouped"]
        grouped = GroupedBlock(place, groups, tuple(of_category))
        return cls(data["first"], ColumnBlock(*data["block"]), grouped, np.array(data["table"], float))


@dataclass(frozen=True)
class ProductRows:
    """The coordinates z of a packed row x: Mx, then products of functions of two columns."""

    matrix: np.ndarray  # M, (a, d)
    rows_of: RowBlocks  # the blocks of the packed rows, which are in places
    sides: tuple[GroupTable, ...] = ()
    products: tuple[tuple[int, int, int, int], ...] = ()  # each a side, its function, another side, its function

    @property
    def count(self) -> int:
        """Number of coordinates, p."""
        return len(self.matrix) + len(self.products)

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return the coordinates (p, n) of packed rows; those of a row of zeros are not 0."""
        features = features_of(rows, self.rows_of)
        packed = features.T / self.rows_of.radius
        found = np.zeros((self.count, len(rows)))
        for place, column in enumerate(self.matrix.T):
            used = np.flatnonzero(column)
            if len(used):
                low, high = used[0], used[-1] + 1
                found[low:high] += column[low:high, None] * packed[place]
        values = [side.values(features) for side in self.sides]
        for place, (one, first, other, second) in enumerate(self.products, start=len(self.matrix)):
            np.multiply(values[one][first], values[other][second], out=found[place])
        return found

    def as_data(self) -> dict[str, Any]:
        """Return it as data, for `product_rows`."""
        matrix = base64.b64encode(np.ascontiguousarray(self.matrix, "<f8").tobytes()).decode()
        return {
            "matrix": [*self.matrix.shape, matrix],
            "rows_of": self.rows_of.as_data(),
            "sides": [side.as_data() for side in self.sides],
            "products": list(map(list, self.products)),
        }


def features_of(rows: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return the coordinates (n, d) of rows in places (n, stride), times the radius; see `placed`."""
    found, every = np.zeros((len(rows), rows_of.dimension)), np.arange(len(rows))
    places, first = np.nan_to_num(rows[:, : rows_of.places].astype(np.float64)), 0
    for place, block in enumerate(rows_of.blocks, start=1):
        at = np.clip(places[:, place], 0, block.cells - 1)
        below = np.minimum(at.astype(np.int64), block.width - 1)
        if block.kind == CURVE:
            below = np.minimum(below, block.width - 2)
            found[every, first + below], found[every, first + below + 1] = below + 1 - at, at - below
        elif block.kind == CATEGORY:
            found[every, first + below] = np.where(at < block.width, block.size, 0.0)
        else:
            found[:, first] = block.least + (block.size - block.least) * at
        first += block.width
    found[:, -1] = places[:, 0]
    return found


def product_rows(data: dict[str, Any]) -> ProductRows:
    """Return the coordinates of `as_data`."""
    *shape, numbers = data["matrix"]
    matrix = np.frombuffer(base64.b64decode(numbers), "<f8").reshape(shape)
    sides = tuple(map(GroupTable.of, data["sides"]))
    return ProductRows(matrix, row_blocks_from(**data["rows_of"]), sides, tuple(map(tuple, data["products"])))
