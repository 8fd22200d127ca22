"""Whole sums over units: each row weighs 1/(rows of its unit that were read), in steps of 2⁻²⁰ (privacy.md §25.2).

Shapes: codes (n, columns), positions (n, columns), in slots of r rows for each unit.
"""

from collections.abc import Sequence

import numpy as np

from dbdp.statistics import _sums as compiled
from dbdp.statistics.coded_columns import EMPTY, FIRST, Code, NumberCode

STEPS = 1 << 20  # of each number: sums of whole steps are exact, in any order
_HALF = 20


def weights_of(is_read: np.ndarray, unit_rows: int) -> np.ndarray:
    """Return the weight of each slot in steps, (n,) int64: those of a unit add up to 1 at most; 0 in empty slots."""
    rows = is_read.reshape(-1, unit_rows).sum(axis=1)
    return np.repeat(STEPS // np.maximum(rows, 1), unit_rows) * is_read


def rounded(sums: np.ndarray, powers: int) -> np.ndarray:
    """Return whole numbers divided by STEPS so many times, rounded to whole steps."""
    bits = _HALF * powers
    return (sums + (1 << (bits - 1))) >> bits


class ColumnSums:
    """The sums of a describe, added up batch by batch: for each column, and of the rows.

    Of a number they are Σ wt and Σ wt² in steps: a unit's own sums are rounded, its rows' are exact. t is rounded to a
    step first, which leaves it in [-1, 1]. With Σw ≤ 2²⁰ no product exceeds 2⁶⁰.
    """

    def __init__(self, codes: Sequence[Code], unit_rows: int) -> None:
        self.codes, self.unit_rows = codes, unit_rows
        self.counts = [np.zeros(code.codes, np.int64) for code in codes]
        self.moments = np.zeros((len(codes), 2), np.int64)
        self.rows = 0

    def add(self, codes: np.ndarray, positions: np.ndarray) -> None:
        """Add the slots of some units."""
        weights = weights_of(codes[:, 0] != EMPTY, self.unit_rows)
        self.rows += int(weights.sum())
        for place, code in enumerate(self.codes):
            found = codes[:, place]
            compiled.add_counts(found, weights, self.counts[place])
            if isinstance(code, NumberCode):
                of_units = weights, self.unit_rows, FIRST, _HALF
                compiled.add_moments(found, positions[:, place], *of_units, self.moments[place])
