"""The blocks of a row's coordinates that belong to one column each, as public facts."""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dbdp.checks import unknown, whole

CURVE, CATEGORY, INDICATOR = "curve", "category", "indicator"
KINDS = (CURVE, CATEGORY, INDICATOR)
MOST_WIDTH = 1 << 20


@dataclass(frozen=True)
class ColumnBlock:
    """The coordinates of one column, which follow one another in a row.

    `curve` is a number with knots, `category` has one coordinate that is not 0, or none, and `indicator` is the one
    coordinate of a value that is 0 or 1.
    """

    kind: str
    width: int  # number of coordinates
    least: float = 0.0  # the coordinate of an indicator that is 0
    size: float = 1.0  # the coordinate of a category that is there, or of an indicator that is 1
    prior: float = 1.0  # how many times the prior variance of a column's categories these have
    groups: int = 0  # of a pair's first column, if the categories are the cells of a pair
    direction: int = 0  # 1 if a score may only rise with the column's number, -1 if only fall: `monotone`

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown kind, or more coordinates than a row may have."""
        if self.kind not in KINDS:
            raise ValueError(unknown("kind of a block", self.kind, KINDS))
        whole("width of a block", self.width, 2 if self.kind == CURVE else 1, MOST_WIDTH)

    @property
    def moments(self) -> int:
        """Number of second moments that are not 0 for all rows; an indicator has a count of 0 and of 1."""
        if self.kind == CURVE:
            return 2 * self.width - 1
        return self.width if self.kind == CATEGORY else 2

    @property
    def cells(self) -> int:
        """Number of cells, between two of which a row is, or in one: see `placed`."""
        return {CURVE: self.width, CATEGORY: self.width + 1, INDICATOR: 2}[self.kind]

    @property
    def heights(self) -> list[float]:
        """The one coordinate of each cell that is not 0, or 0: a row between two cells has the mean of theirs."""
        if self.kind == INDICATOR:
            return [self.least, self.size]
        return [1.0] * self.width if self.kind == CURVE else [*[self.size] * self.width, 0.0]


@dataclass(frozen=True)
class RowBlocks:
    """The blocks of a row, in its order, without the constant behind them; a row is divided by `radius`.

    A radius of 1 says that each row is divided by its own norm, which is at least 1 as it has the constant. In places
    a row has one number for each block, the constant's first: 1, or a factor just below one over that norm.
    """

    blocks: tuple[ColumnBlock, ...]
    radius: float

    @property
    def places(self) -> int:
        """Numbers of a row in places."""
        return 1 + len(self.blocks)

    @property
    def sizes(self) -> list[int]:
        """Number of cells of each place."""
        return [2, *(block.cells for block in self.blocks)]

    @property
    def dimension(self) -> int:
        """Number of coordinates, d."""
        return 1 + sum(block.width for block in self.blocks)

    @property
    def is_unit(self) -> bool:
        """Whether each row is divided by its own norm."""
        return self.radius == 1.0

    @property
    def lines(self) -> int:
        """Number of blocks with one coordinate between two ends."""
        return sum(block.kind == INDICATOR for block in self.blocks)

    @property
    def split(self) -> int:
        """Number of the first places, behind which all are categories: there no row is between two cells."""
        return 1 + max((place for place, block in enumerate(self.blocks, 1) if block.kind != CATEGORY), default=0)

    @property
    def two(self) -> list[bool]:
        """Whether a row has two coordinates of each place that may differ from 0, or one."""
        return [False, *(block.kind == CURVE for block in self.blocks)]

    @cached_property
    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """The coordinate of each cell that may differ from 0, and its value, shapes (Σ cells,).

        A row has coordinates x with ‖x‖ ≤ 1. Proof. Between two cells, as a + b = 1, it has (a, b) of a curve, `size`
        of a category, and of an indicator a number in [-1, 1]; by the choice of radius the squares of 1 for each of
        these, or size², and the constant's add up to radius² at most. With a radius of 1 a row's factor does it. ∎
        """
        places, heights, first = [self.dimension - 1] * 2, [0.0, 1.0], 0
        for block in self.blocks:
            places += [first + min(cell, block.width - 1) for cell in range(block.cells)]
            heights += block.heights
            first += block.width
        return np.array(places), np.array(heights) / self.radius

    def as_data(self) -> dict[str, Any]:
        """Return the blocks as data, for `row_blocks_from`."""
        return {"blocks": self._described, "radius": self.radius}

    @cached_property
    def _described(self) -> list[list[Any]]:
        return [list(astuple(block)) for block in self.blocks]


@dataclass(frozen=True)
class Placed:
    """What the lengths of rows in places follow from, see `placed.measured`: their blocks, and the factors of a matrix.

    Or these are `squared`, MᵀM of a matrix M: where most of it differs from 0, lengths follow from that faster.
    """

    rows_of: RowBlocks
    factors: np.ndarray
    squared: bool = False

    def as_text(self) -> str:
        """Return everything but the factors as JSON, for `placed_from`."""
        return json.dumps(self.rows_of.as_data() | {"squared": self.squared})


def placed_from(text: str, factors: bytes) -> Placed:
    """Return what `Placed.as_text` describes, with factors (…, d) of 8 bytes each."""
    data = json.loads(text)
    squared = bool(data.pop("squared"))
    rows_of = row_blocks_from(**data)
    return Placed(rows_of, np.frombuffer(factors, "<f8").reshape(-1, rows_of.dimension), squared)


def row_blocks_from(blocks: Sequence[Sequence[Any]], radius: float) -> RowBlocks:
    """Return the blocks that `RowBlocks.as_data` describes; raise ValueError unless they are valid."""
    return _row_blocks(tuple(map(tuple, blocks)), radius)


@lru_cache(maxsize=8)
def _row_blocks(blocks: tuple[tuple[Any, ...], ...], radius: float) -> RowBlocks:
    return RowBlocks(tuple(ColumnBlock(*block) for block in blocks), radius)
