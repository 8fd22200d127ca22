"""Counts and means by groups, with margins, for one charge (privacy.md §25.8).

Shapes: a table has an axis for each column of `by` that is in it, and a measured vector the tables one after the other,
each once for counts, or three times for each mean (NULLs, numbers, Σt), and the number of rows last.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from typing import Any, ClassVar

import numpy as np

from dbdp.learning.rows.features import Numeric
from dbdp.privacy.accounting.events import Release, check_epsilon_delta
from dbdp.privacy.counts import CountNoise, count_noise
from dbdp.statistics.coded_columns import EMPTY, FIRST, NO_VALUE, NULL, Code, NumberCode, as_data, from_data
from dbdp.statistics.stepped_noise import Population
from dbdp.statistics.unit_sums import STEPS, rounded, weights_of

MOST_CELLS, MOST_PURE = 100_000, 4
Subset = tuple[int, ...]  # the axes of a table, by their places


@dataclass(frozen=True)
class Axis:
    """The groups of a column: its categories, other values and NULL; or the cells of a number and NULL."""

    code: Code

    @property
    def words(self) -> list[str]:
        """A word for each group, in their order."""
        if not isinstance(self.code, NumberCode):
            return [*self.code.categories, *reversed(self.code.words[:2])]
        if self.code.is_whole:
            return [*(f"{self.code.lower + place:.0f}" for place in range(self.code.inner)), NO_VALUE]
        bins = Numeric("", self.code.lower, self.code.upper, bins=self.code.inner, scale=self.code.scale)
        return [*(name.removeprefix("=") for name in bins.bin_names), NO_VALUE]

    @property
    def size(self) -> int:
        """Number of groups."""
        return len(self.words)

    def groups(self, codes: np.ndarray) -> np.ndarray:
        """Return the group of each code; a number outside the bounds is in the first or the last cell."""
        if isinstance(self.code, NumberCode):
            return np.where(codes == NULL, self.size - 1, np.clip(codes - FIRST - 1, 0, self.code.inner - 1))
        return np.where(codes >= FIRST, codes - FIRST, self.size - codes)


class TableSums:
    """The sums of tables, added up batch by batch."""

    def __init__(self, plan: "TablePlan") -> None:
        self.plan = plan
        self.rows = 0
        self.tables = [np.zeros((plan.figures, plan.cells_of(table)), np.int64) for table in plan.tables]

    def add(self, codes: np.ndarray, positions: np.ndarray) -> None:
        """Add the slots of some units."""
        is_read = codes[:, 0] != EMPTY
        weights = weights_of(is_read, self.plan.population.unit_rows)
        self.rows += int(weights.sum())
        groups = [axis.groups(codes[:, place]) for place, axis in enumerate(self.plan.axes)]
        added = self._addends(codes[:, len(groups) :], positions[:, len(groups) :], weights)
        for table, sums in zip(self.plan.tables, self.tables, strict=True):
            cells = np.zeros(len(codes), np.int64)
            for axis in table:
                cells = cells * self.plan.axes[axis].size + groups[axis] * is_read
            for place, each in enumerate(added):
                sums[place] += np.bincount(cells, each, sums.shape[1]).astype(np.int64)

    def _addends(self, codes: np.ndarray, positions: np.ndarray, weights: np.ndarray) -> list[np.ndarray]:
        """Return what each slot adds to its cells, in steps: 1, or for each mean NULL, number and t."""
        if not self.plan.measures:
            return [weights]
        steps = np.rint(positions * STEPS).astype(np.int64)
        parts = []
        for place in range(len(self.plan.measures)):
            valid = weights * (codes[:, place] >= FIRST)
            parts += [weights - valid, valid, rounded(valid * steps[:, place], 1)]
        return parts


@dataclass(frozen=True)
class TablePlan:
    """The plan of a release of tables, from public facts only. Neighbours are replace-one, for records or units.

    Proof (privacy.md §25.8). A record is in one cell of each of k tables: two differ by 2k in L1, √(2k) in L2. For each
    of m means a cell has (1 for NULL, 1 for a number, t): two cells differ by 1 + |t| ≤ 2 each, two records in one cell
    by |t - s| ≤ 2, or by 2 + |t| ≤ 3 with NULL. So 4mk in L1, and 4mk in the square of L2: in both norms, `groups`
    counts that move by 1 each. One that moves by 2 is charged no less: a release of 2x-DP costs at most as much as four
    of x, see there. The number of rows rides free: k + 1 ≤ 2k, and 2mk + 1 ≤ 4mk. A unit adds a convex
    combination (§25.2), of which at most r products are rounded in each table and mean, so `moved` has r steps more.
    """

    epsilon: float
    delta: float
    axes: tuple[Axis, ...]
    measures: tuple[NumberCode, ...]  # the numbers of which there are means; none for counts
    margins: bool
    population: Population
    algorithm: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        """Check ε, δ, the number of cells, and that noise leaves something to be seen."""
        check_epsilon_delta(self.epsilon, self.delta)
        if not self.codes:
            raise ValueError("by is empty, and so are the means; name a column in by: the row (all) has all rows")
        if self.cells > MOST_CELLS:
            raise ValueError(
                f"the tables have {self.cells} cells, above the limit of {MOST_CELLS}; name fewer columns in by, or "
                "fewer bins"
            )
        if self.delta == 0 and len(self.tables) > MOST_PURE:
            raise ValueError(
                f"delta = 0 with {len(self.tables)} tables has more noise than a delta > 0; give one, such as 1e-6, or "
                "leave margins out"
            )
        largest = self.cells_of(tuple(range(len(self.axes))))
        if self.half_width * largest >= self.population.units:
            raise ValueError(
                f"each cell would be noise: {self.population.units} rows in {largest} cells are fewer than ± "
                f"{self.half_width:.0f} a cell; name fewer columns in by, fewer bins, or a larger epsilon"
            )

    @classmethod
    def of_receipt(cls, receipt: Mapping[str, Any]) -> "TablePlan":
        """Return the plan that a receipt describes."""
        axes, measures = (from_data(receipt[name]) for name in ("by", "measures"))
        numbers = tuple(each for each in measures if isinstance(each, NumberCode))
        public = tuple(map(Axis, axes)), numbers, receipt["margins"], Population.of_receipt(receipt)
        return cls(receipt["epsilon"], receipt["delta"], *public)

    @property
    def codes(self) -> tuple[Code, ...]:
        """The columns that are read."""
        return (*(axis.code for axis in self.axes), *self.measures)

    @property
    def tables(self) -> list[Subset]:
        """The measured tables, the largest first; the number of rows is the one without axes, if only rows count."""
        every = range(len(self.axes))
        sizes = (
            range(len(self.axes), -1 if self.measures else 0, -1) if self.margins and self.axes else [len(self.axes)]
        )
        return list(chain.from_iterable(combinations(every, size) for size in sizes))

    @property
    def figures(self) -> int:
        """Numbers in each cell."""
        return 3 * len(self.measures) or 1

    def cells_of(self, table: Subset) -> int:
        """Return the cells of a table."""
        return math.prod(self.axes[place].size for place in table)

    @property
    def cells(self) -> int:
        """Coordinates of a release."""
        return self.figures * sum(map(self.cells_of, self.tables)) + 1

    @property
    def groups(self) -> int:
        """Counts that move by 1 between neighbours, at most, all tables together."""
        return len(self.tables) * (4 * len(self.measures) or 2)

    @property
    def step(self) -> int:
        """Units of a coordinate: 1 where whole rows are counted."""
        return STEPS if self.measures or self.population.unit_rows > 1 else 1

    @cached_property
    def mechanism(self) -> CountNoise:
        """The noise of each coordinate, in units of 1/`step`."""
        moved = self.step + (self.population.unit_rows if self.step > 1 else 0)
        return count_noise(self.groups, self.epsilon, self.delta, moved=moved, dimension=self.cells)

    @property
    def scale(self) -> float:
        """The standard deviation of the noise of a coordinate."""
        return self.mechanism.noise_scale * (1.0 if self.delta else math.sqrt(2)) / self.step

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval of a count, which has the noise of two coordinates beside means."""
        each = max(self.mechanism.tail(0.025) - 1, 1) / self.step
        return each * math.sqrt(2) if self.measures else each

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return self.mechanism.guarantee

    def sums(self) -> TableSums:
        """Return the sums, before the first row."""
        return TableSums(self)

    def coordinates(self, sums: TableSums) -> np.ndarray:
        """Return the coordinates without noise, in units of 1/`step`, (cells,) int64."""
        exact = np.concatenate([*(table.ravel() for table in sums.tables), [sums.rows]])
        return exact // (STEPS // self.step)

    def release(self, sums: TableSums) -> np.ndarray:
        """Return the noisy coordinates, (cells,)."""
        return self.mechanism.release(self.coordinates(sums)) / self.step

    def split(self, noisy: np.ndarray) -> Iterator[tuple[Subset, np.ndarray]]:
        """Yield each measured table, with its numbers, shape (figures, sizes of its axes)."""
        first = 0
        for table in self.tables:
            last = first + self.figures * self.cells_of(table)
            yield table, noisy[first:last].reshape(self.figures, *(self.axes[place].size for place in table))
            first = last

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""
        return {
            "algorithm": self.algorithm,
            **self.population.explained,
            "tables": len(self.tables),
            "cells": self.cells,
            "sensitivity": self.mechanism.sensitivity / self.step,
            "mechanism": self.mechanism.name,
            "noise_scale": self.mechanism.noise_scale / self.step,
            "count_noise": self.half_width,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "margins": self.margins,
            "by": as_data([axis.code for axis in self.axes]),
            "measures": as_data(self.measures),
        }


def measured_columns(measures: Any) -> list[str]:
    """Return the columns of which means are wanted; raise ValueError for anything but `count` and `mean COLUMN`."""
    listed = measures if isinstance(measures, list) else []
    wanted = [each.partition(" ")[2].strip() for each in listed if isinstance(each, str) and each.startswith("mean ")]
    if not listed or len(wanted) + listed.count("count") != len(listed) or len(set(wanted)) != len(wanted):
        raise ValueError(
            f"measures = {measures!r} must be a list of 'count' and 'mean COLUMN', such as '{{count,mean age}}'; for "
            "quantiles call dbdp.dp_quantiles, and for a least or largest number dbdp.dp_bounds"
        )
    return wanted


def numbers_of(codes: Sequence[Code]) -> tuple[NumberCode, ...]:
    """Return the codes of numbers; raise ValueError for a column of categories, which has no mean."""
    for code in codes:
        if not isinstance(code, NumberCode):
            raise ValueError(f"column {code.column!r} has categories and no mean; name it in by, or choose a number")
    return tuple(code for code in codes if isinstance(code, NumberCode))
