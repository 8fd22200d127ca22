"""Counts, means, deviations and quartiles of all declared columns, for one charge (privacy.md §25).

A number adds (1, t, √2t²) and A·e_cell, see `prefix_sums`, or one NULL; a category one of its values. Shapes: a
release is one vector, the blocks of the columns one after the other, and the number of rows last.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np

from dbdp.privacy.accounting.events import Release
from dbdp.privacy.mechanisms import ROOM, Gaussian
from dbdp.statistics import prefix_sums
from dbdp.statistics.coded_columns import FIRST, NULL, Code, NumberCode, as_data, from_data
from dbdp.statistics.stepped_noise import WIDTHS, Population, SteppedGaussian
from dbdp.statistics.unit_sums import STEPS, ColumnSums

SQUARED = math.sqrt(2)  # what a square weighs beside a number


def positions_of(code: NumberCode) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest position in each cell that a value may have there, shapes (cells,).

    Positions are rounded to steps, and computed within 4 units in the last place of the larger bound: cells reach as
    far beyond their edges.
    """
    beyond = 1 / STEPS + 2.0**-49 * max(abs(code.lower), abs(code.upper)) / code.half
    least, most = code.reach
    return np.maximum(least - beyond, -1.0), np.minimum(most + beyond, 1.0)


@cache
def number_reach(code: NumberCode) -> tuple[float, float]:
    """Return the largest ‖u - v‖² of two blocks of a number, NULL among them, and the largest ‖u‖² (privacy.md §25.4).

    Proof. With a = |t - s|, b = |t + s|, a + b ≤ 2, two numbers have a²(1 + 2b²) ≤ 4 apart in (t, √2t²), and at most
    its value at the largest a and b that their cells allow; beside it stands ‖A·e_b - A·e_c‖². So the largest sum over
    all pairs of cells is a bound. A number and NULL have 1 for NULL, 1 + t² + 2t⁴ for the number, and ‖A·e_b‖². ∎
    """
    least, most = positions_of(code)
    apart = np.maximum(most[:, None] - least, most - least[:, None])
    together = np.maximum(np.abs(most[:, None] + most), np.abs(least[:, None] + least))
    moments = np.minimum(apart**2 * (1 + 2 * together**2), 4.0)
    ends = np.maximum(least**2, most**2)
    longest = float((1 + ends + 2 * ends**2 + np.diag(prefix_sums.gram(code.cells))).max())
    return max(float((moments + prefix_sums.distances(code.cells)).max()), longest + 1) * ROOM, longest * ROOM


@dataclass(frozen=True)
class DescribePlan:
    """The plan of a describe, from public facts only. Neighbours are replace-one, for records or units.

    Proof (privacy.md §25.4). A record adds one block to each column, and w to the number of rows; a slot without a
    record adds nothing. Blocks of different columns are orthogonal: two records differ by at most the sum of the
    columns' own largest ‖u - v‖², a record and none by that of ‖u‖² and w². w makes the second sum no larger than the
    first. A unit adds a convex combination of its rows and of nothing (§25.2), which is no longer. Rounding to steps
    moves each entry by half of one in each world. A coordinate that weighs c has noise of σ/c: together one Gaussian.
    """

    epsilon: float
    delta: float
    codes: tuple[Code, ...]
    population: Population
    algorithm: ClassVar[str] = "describe"

    def __post_init__(self) -> None:
        """Check ε, δ, and that noise leaves something to be seen."""
        SteppedGaussian.check(self.epsilon, self.delta, "a describe")
        if self.half_width >= self.population.units:
            raise ValueError(
                f"each count would be noise: it has ± {self.half_width:.0f}, and {self.population.units} rows at most; "
                "choose a larger epsilon, or declare fewer columns"
            )

    @classmethod
    def of_receipt(cls, receipt: Mapping[str, Any]) -> "DescribePlan":
        """Return the plan that a receipt describes."""
        codes = tuple(from_data(receipt["columns"]))
        return cls(receipt["epsilon"], receipt["delta"], codes, Population.of_receipt(receipt))

    def sums(self) -> ColumnSums:
        """Return the sums, before the first row."""
        return ColumnSums(self.codes, self.population.unit_rows)

    @property
    def numbers(self) -> list[NumberCode]:
        """The columns that are numbers."""
        return [code for code in self.codes if isinstance(code, NumberCode)]

    @cached_property
    def _squares(self) -> tuple[float, float]:
        """The largest squared distance of two records, and the largest squared length of one."""
        categories = len(self.codes) - len(self.numbers)
        reach = np.array([number_reach(code) for code in self.numbers]).reshape(-1, 2).sum(axis=0)
        return float(reach[0]) + 2 * categories, float(reach[1]) + categories

    @property
    def rows_weight(self) -> float:
        """w, what a row weighs in the number of rows."""
        apart, longest = self._squares
        return math.sqrt(apart - longest) / ROOM

    @cached_property
    def sensitivity(self) -> float:
        """The L2 sensitivity of the weighted release, with its rounding to steps."""
        rounding = math.sqrt(sum(3 + code.cells for code in self.numbers)) / STEPS
        return (math.sqrt(self._squares[0]) + rounding) * ROOM

    @cached_property
    def noise(self) -> SteppedGaussian:
        """The noise."""
        return SteppedGaussian(self.epsilon, self.delta, self.sensitivity, len(self.weights))

    @property
    def half_width(self) -> float:
        """Half the width of a count's 95 % interval."""
        return WIDTHS * self.noise.scale

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return self.noise.guarantee

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of each coordinate, (d,)."""
        parts = [
            [1.0, 1.0, 1.0, SQUARED] + [1.0] * code.cells if isinstance(code, NumberCode) else [1.0] * (code.codes - 1)
            for code in self.codes
        ]
        return np.array([each for part in parts for each in part] + [self.rows_weight])

    def coordinates(self, sums: ColumnSums) -> np.ndarray:
        """Return the coordinates without noise, (d,), each in units of 1."""
        blocks = [self._block(sums, place) for place in range(len(self.codes))]
        return np.concatenate([*blocks, [sums.rows]]) / STEPS

    def release(self, sums: ColumnSums) -> np.ndarray:
        """Return the noisy coordinates, (d,)."""
        exact = self.coordinates(sums)
        noisy = np.empty(len(exact))
        for weight in np.unique(self.weights).tolist():
            here = self.weights == weight
            noisy[here] = self.noise.of_weight(weight).release(exact[here])
        return noisy

    def _block(self, sums: ColumnSums, place: int) -> np.ndarray:
        """Return the exact block of a column, in steps."""
        counts = sums.counts[place]
        if not isinstance(self.codes[place], NumberCode):
            return counts[NULL:]
        cells = counts[FIRST:]
        moments = [counts[NULL], cells.sum(), *sums.moments[place]]
        return np.concatenate([moments, prefix_sums.transformed(cells)])

    def blocks(self, noisy: np.ndarray) -> Iterator[tuple[Code, np.ndarray]]:
        """Yield each column and its noisy block: of a number NULLs, numbers, Σt, Σt², A·h; of a category its counts."""
        first = 0
        for code in self.codes:
            last = first + (4 + code.cells if isinstance(code, NumberCode) else code.codes - 1)
            yield code, noisy[first:last]
            first = last

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""
        return {
            "algorithm": self.algorithm,
            **self.population.explained,
            "sensitivity": self.sensitivity,
            "mechanism": Gaussian.name,
            "noise_scale": self.noise.scale,
            "count_noise": self.half_width,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "columns": as_data(self.codes),
        }
