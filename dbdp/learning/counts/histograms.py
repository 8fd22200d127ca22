"""Histograms of the columns and of the label of packed rows, all of them as one tally of whole numbers.

A row's cells depend on that row alone, and no value of it raises an error.
"""

from dataclasses import dataclass

import numpy as np

from dbdp.learning.rows.column_blocks import CATEGORY, INDICATOR, ColumnBlock

LABEL_CELLS = 32  # of a label that is a number
ROUNDED = 2.0**-16  # above what packing rounds a number between two knots: at the edge of two cells it is in the second


@dataclass(frozen=True)
class Histograms:
    """Rows by the cell of each column, block after block, then by label; a row without a label is not counted.

    `blocks` are those of `RowBlocks`, each as (kind, width, least, size), and `radius` is theirs. A value that is in no
    cell of a column is not counted there.
    """

    blocks: list[tuple[str, int, float, float]]
    radius: float
    is_number: bool  # whether the label is a number in [-1, 1]; otherwise it is -1 or 1

    def of_rows(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally of packed rows (n, stride), int64: a number for each cell."""
        present, first, counts = ~np.isnan(labels), 0, []
        features = rows[present].astype(np.float64) * self.radius
        for block in (ColumnBlock(*each) for each in self.blocks):
            cells = cells_of(block, features[:, first : first + block.width])
            counts.append(np.bincount(cells[cells >= 0], minlength=block.cells))
            first += block.width
        return np.concatenate([*counts, self._of_labels(labels[present].astype(np.float64))])

    def _of_labels(self, labels: np.ndarray) -> np.ndarray:
        cells = LABEL_CELLS if self.is_number else 2
        places = (np.clip(labels, -1.0, 1.0) + 1.0) * (cells / 2)
        return np.bincount(np.clip(places, 0, cells - 1).astype(np.int64), minlength=cells)


def cells_of(block: ColumnBlock, features: np.ndarray) -> np.ndarray:
    """Return the cell of each row in a column (n,), -1 for none, from its coordinates (n, width)."""
    if block.kind == INDICATOR:
        return (features[:, 0] > (block.least + block.size) / 2).astype(np.int64)
    if block.kind == CATEGORY:
        return np.where(features.max(axis=1) > block.size / 2, features.argmax(axis=1), -1)
    reached = 2.0 * (features * np.arange(block.width)).sum(axis=1) + ROUNDED
    return np.clip(np.nan_to_num(reached), 0, block.cells - 1).astype(np.int64)
