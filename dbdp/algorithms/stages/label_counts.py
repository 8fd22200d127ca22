"""A release of how many rows of each of two labels have each value of a column, for all columns, as one noisy vector.

privacy.md §27.1. Shapes: a table is (2, cells), the rows with the label -1 first.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbdp.algorithms.noisy_sums import gaussian_sum
from dbdp.algorithms.rows import Rows
from dbdp.learning.counts import tallies
from dbdp.learning.counts.label_tables import LabelTables
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.privacy.mechanisms import ROOM, Gaussian


@dataclass(frozen=True)
class LabelCounts:
    """The release, from public facts only; `multiplier` is σ in units of the sensitivity."""

    rows_of: RowBlocks
    multiplier: float

    @property
    def sensitivity(self) -> float:
        """√(2F): how far one replaced record moves the tables of F columns and pairs.

        Proof (privacy.md §27.1). By a function of itself a record adds 1 to one cell of each of F tables, or nothing: a
        vector v ≥ 0 with ‖v‖² ≤ F. Two such vectors have ⟨v, w⟩ ≥ 0, so that ‖v - w‖² ≤ 2F; a record and none differ
        by √F. Counts are whole numbers: there is no rounding. ∎ Attained by two records with different labels.
        """
        return math.sqrt(2 * len(self.rows_of.blocks)) * ROOM

    @property
    def sizes(self) -> list[int]:
        """How many numbers each table has."""
        return [2 * block.cells for block in self.rows_of.blocks]

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of each number."""
        return gaussian_sum(self.sensitivity, sum(self.sizes), multiplier=self.multiplier)

    def released(self, rows: Rows) -> list[np.ndarray]:
        """Return the noisy table of each column: one pass over the packed rows."""
        described = tallies.described(LabelTables(**self.rows_of.as_data()), outputs=1, dimension=self.rows_of.places)
        noisy = self.noise.release(rows.tally(np.zeros(1), described).astype(float))
        return [each.reshape(2, -1) for each in np.split(noisy, np.cumsum(self.sizes)[:-1])]
