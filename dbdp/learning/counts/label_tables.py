"""Rows by their label and by the nearest cell of each column, of rows in places, as a tally of whole numbers.

What a row adds depends on that row only, and no value of it raises an error.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.learning.compiled.arithmetic import flushed
from dbdp.learning.rows.column_blocks import row_blocks_from


@dataclass(frozen=True)
class LabelTables:
    """For each column the rows with the label -1 by their nearest cell, then those with +1.

    `blocks` and `radius` are those of `RowBlocks.as_data`. A row with another label, or without one, is not counted.
    """

    blocks: list[list[Any]]
    radius: float

    @flushed
    def of_rows(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally of rows in places (n, stride), int64: 2·cells numbers for each column."""
        rows_of, is_counted = row_blocks_from(self.blocks, self.radius), np.abs(labels) == 1.0
        counted, positive = rows[is_counted], labels[is_counted] > 0.0
        columns = enumerate(rows_of.blocks, start=1)
        return np.concatenate([_table(counted[:, place], positive, block.cells) for place, block in columns])


def _table(places: np.ndarray, positive: np.ndarray, cells: int) -> np.ndarray:
    nearest = np.clip(np.rint(places), 0, cells - 1).astype(np.int64)
    return np.bincount(cells * positive + nearest, minlength=2 * cells)
