"""The second moment of rows in other coordinates, each cut to a length, as a tally of whole numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.learning.rows.column_blocks import row_blocks_from
from dbdp.learning.rows.placed import STEP, moment_of_steps

STEPS = STEP**2  # what the tally has as 1


@dataclass(frozen=True)
class CutMoment:
    """Σ zzᵀ over the rows x in 1/STEPS, where z = Mx/length is cut to 1 and in whole numbers of 1/STEP.

    `blocks` and `radius` are those of `RowBlocks.as_data`.
    """

    length: float
    coordinates: int  # the first rows of M; the others are not read
    blocks: list[list[Any]]
    radius: float

    def of_rows(self, matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the tally of rows in places (n, stride) for M = `matrix` (d, d): its diagonal, then what is above.

        It is int64, of coordinates·(coordinates + 1)/2 numbers.
        """
        rows_of = row_blocks_from(self.blocks, self.radius)
        total = moment_of_steps(rows, matrix[: self.coordinates], rows_of, self.length)
        return np.concatenate([np.diagonal(total), total[np.triu_indices(self.coordinates, 1)]])
