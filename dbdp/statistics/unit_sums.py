"""Whole sums over units: each row weighs 1/(rows of its unit that were read), in steps of 2⁻²⁰ (privacy.md §25.2).

Shapes: codes (n, columns), positions (n, columns), in slots of r rows for each unit.
"""

from collections.abc import Sequence

import numpy as np

from dbdp.statistics.coded_columns import EMPTY, FIRST, NULL, Code, NumberCode

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


def number_sums(positions: np.ndarray, weights: np.ndarray, unit_rows: int) -> np.ndarray:
    """Return Σ wt and Σ wt² in steps, shape (2,): a unit's own sums are rounded, its rows' are exact.

    t is rounded to a step first, which leaves it in [-1, 1]. With Σw ≤ 2²⁰ no product exceeds 2⁶⁰.
    """
    steps = np.rint(positions * STEPS).astype(np.int64)
    by_unit = (weights * steps).reshape(-1, unit_rows).sum(axis=1), (weights * steps**2).reshape(-1, unit_rows).sum(1)
    return np.array([rounded(each, power).sum() for power, each in enumerate(by_unit, 1)])


class ColumnSums:
    """The sums of a describe, added up batch by batch: for each column, and of the rows."""

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
            counts = np.bincount(codes[:, place], weights, code.codes)
            self.counts[place] += counts.astype(np.int64)
            if isinstance(code, NumberCode):
                weighted = weights * (codes[:, place] >= FIRST)
                self.moments[place] += number_sums(positions[:, place], weighted, self.unit_rows)

    def nulls(self, place: int) -> int:
        """Return the NULLs of a column, in steps."""
        return int(self.counts[place][NULL])
