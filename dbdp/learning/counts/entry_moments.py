"""The second moment of rows in places, as a tally of whole numbers.

What a row adds depends on that row only, and no value of it raises an error.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.learning.rows.column_blocks import row_blocks_from
from dbdp.learning.rows.placed import layout_of

FINEST_GRID = 1 << 22  # below that a product of two coordinates has no more than 44 bits


def grid_of(rows: int) -> int:
    """Return what a coordinate of 1 is in the tally of so many rows: its square, times these, is below 2⁶³."""
    return min(FINEST_GRID, 1 << (62 - rows.bit_length()) // 2)


@dataclass(frozen=True)
class EntryMoment:
    """Σ qqᵀ over the rows, q the coordinates in whole numbers of 1/`grid`, rounded towards 0: ‖q‖ ≤ `grid`, as ‖x‖ ≤ 1.

    `blocks` and `radius` are those of `RowBlocks.as_data`.
    """

    grid: int
    blocks: list[list[Any]]
    radius: float

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return the tally of packed rows (n, stride), int64, in 1/grid²: its diagonal, then what is above."""
        once = layout_of(row_blocks_from(self.blocks, self.radius)).products(rows, self.grid)
        both = once + once.T  # each pair of coordinates was added on one side of the diagonal
        return np.concatenate([np.diagonal(once), both[np.triu_indices(len(once), 1)]])
