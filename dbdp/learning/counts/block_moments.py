"""Second moments of each column's coordinates in packed rows, and counts of the label, as one tally of whole numbers.

What a row adds depends on that row only, and no value of it raises an error.
"""

from dataclasses import dataclass

import numpy as np

from dbdp.learning.rows.column_blocks import CATEGORY, INDICATOR, ColumnBlock

LABEL_CELLS = 32  # of a label that is a number
GRID = 1 << 16  # a coordinate of a curve is a whole number of 1/GRID
PARTS = GRID**2  # of 1 in the tally: 2³¹ rows fit into an int64
_ROUNDED = 2.0**-5  # of 1/GRID: above the rounding of a packed row, so that a coordinate of 1 stays 1


@dataclass(frozen=True)
class BlockMoments:
    """For each column Σ bbᵀ over the rows' coordinates b, where it is not 0 for any row, and the rows by their label.

    Of a curve these are the diagonal, then the numbers beside it; of a category the rows of each, of an indicator
    those of 0 and of 1. `blocks` are those of `RowBlocks`, each as (kind, width, least, size), and `radius` is theirs.
    A row without a label is not counted.
    """

    blocks: list[tuple[str, int, float, float]]
    radius: float
    is_number: bool  # whether the label is a number in [-1, 1]; otherwise it is -1 or 1, or a class from 1 to K
    outputs: int = 1  # K, of several classes

    def of_rows(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally of packed rows (n, stride), int64, in 1/PARTS: `ColumnBlock.moments` numbers for each."""
        present, first, sums = ~np.isnan(labels), 0, []
        features = rows[present].astype(np.float64) * self.radius
        for block in (ColumnBlock(*each) for each in self.blocks):
            sums.append(moments_of(block, features[:, first : first + block.width]))
            first += block.width
        return np.concatenate([*sums, self._of_labels(labels[present].astype(np.float64))])

    def _of_labels(self, labels: np.ndarray) -> np.ndarray:
        cells = label_cells(self.outputs, is_number=self.is_number)
        places = labels - 1.0 if self.outputs > 1 else (np.clip(labels, -1.0, 1.0) + 1.0) * (cells / 2)
        return PARTS * np.bincount(np.clip(places, 0, cells - 1).astype(np.int64), minlength=cells)


def label_cells(outputs: int, *, is_number: bool) -> int:
    """Return how many cells the histogram of the label has: one for each class, or equal parts of a number's range."""
    return LABEL_CELLS if is_number else max(2, outputs)


def moments_of(block: ColumnBlock, features: np.ndarray) -> np.ndarray:
    """Return what the rows' coordinates in a column (n, width) add to the tally; a value that is in none adds 0."""
    if block.kind == INDICATOR:
        is_there = features[:, 0] > (block.least + block.size) / 2
        return PARTS * np.bincount(is_there.astype(np.int64), minlength=2)
    if block.kind == CATEGORY:
        cells = features.argmax(axis=1)[features.max(axis=1) > block.size / 2]
        return PARTS * np.bincount(cells, minlength=block.width)
    whole = np.floor(np.clip(np.nan_to_num(features), 0.0, 1.0) * GRID + _ROUNDED).astype(np.int64)
    return np.concatenate([(whole * whole).sum(axis=0), (whole[:, 1:] * whole[:, :-1]).sum(axis=0)])
