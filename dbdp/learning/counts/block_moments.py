"""Second moments of each column's coordinates in rows in places, and counts of the label, as a tally of whole numbers.

What a row adds depends on that row only, and no value of it raises an error.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.learning.compiled.arithmetic import flushed
from dbdp.learning.rows.column_blocks import CATEGORY, INDICATOR, ColumnBlock, row_blocks_from
from dbdp.learning.rows.placed import layout_of

LABEL_CELLS = 32  # of a label that is a number
GRID = 1 << 16  # the part of a row that is in a cell is a whole number of 1/GRID
PARTS = GRID**2  # of 1 in the tally: 2³¹ rows fit into an int64


@dataclass(frozen=True)
class BlockMoments:
    """For each column Σ bbᵀ over the rows' coordinates b, where it is not 0 for any row, and the rows by their label.

    Of a curve these are the diagonal, then the numbers off it; of a category the rows of each, of an indicator
    those of 0 and of 1. `blocks` and `radius` are those of `RowBlocks.as_data`. A row without a label is not counted.
    """

    blocks: list[list[Any]]
    radius: float
    is_number: bool  # whether the label is a number in [-1, 1]; otherwise it is -1 or 1, or a class from 1 to K
    outputs: int = 1  # K, of several classes

    @flushed
    def of_rows(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally of packed rows (n, stride), int64, in 1/PARTS: `ColumnBlock.moments` numbers for each."""
        rows_of = row_blocks_from(self.blocks, self.radius)
        sums = np.split(layout_of(rows_of).moments(rows, GRID), np.cumsum(rows_of.sizes)[:-1])[1:]
        parts = [moments_of(block, each) for block, each in zip(rows_of.blocks, sums, strict=True)]
        return np.concatenate([*parts, self._of_labels(labels[~np.isnan(labels)].astype(np.float64))])

    def _of_labels(self, labels: np.ndarray) -> np.ndarray:
        cells = label_cells(self.outputs, is_number=self.is_number)
        places = labels - 1.0 if self.outputs > 1 else (np.clip(labels, -1.0, 1.0) + 1.0) * (cells / 2)
        return PARTS * np.bincount(np.clip(places, 0, cells - 1).astype(np.int64), minlength=cells)


def label_cells(outputs: int, *, is_number: bool) -> int:
    """Return how many cells the histogram of the label has: one for each class, or equal parts of a number's range."""
    return LABEL_CELLS if is_number else max(2, outputs)


def moments_of(block: ColumnBlock, sums: np.ndarray) -> np.ndarray:
    """Return the tally of a column from Σ a², Σ b² and Σ ab of its cells and the next ones, shape (cells, 3).

    An indicator that is between 0 and 1 is counted in parts, a(a + b) and b(a + b).
    """
    diagonal, beside = sums[:, 0] + np.roll(sums[:, 1], 1), sums[:-1, 2]
    if block.kind == INDICATOR:
        return diagonal + beside
    return diagonal[: block.width] if block.kind == CATEGORY else np.concatenate([diagonal, beside])
