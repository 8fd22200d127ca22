"""Counts, means and deviations from a summary, each with half the width of the 95 % interval of its noise.

All of it is post-processing (privacy.md §16.7). Shapes as in `viewed_columns`; figures are in rows, or in
units of their columns.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbdp.controller.statistics.summary_views.one_way import OneWay, one_way
from dbdp.controller.statistics.summary_views.viewed_columns import Number, ViewedColumn, columns_of
from dbdp.registry.results.stored_summaries import StoredSummary
from dbdp.statistics.stepped_noise import WIDTHS

_DIGITS = 3  # of an error; a figure has as many decimals


@dataclass(frozen=True)
class Figure:
    """A figure and half the width of its interval; NaN if noise hides it."""

    value: float
    plus_minus: float

    @property
    def counted(self) -> tuple[int, int]:
        """Both as whole numbers.

        If |x - t| ≤ w for a whole number t, then |round(x) - t| < w + ½ + ½, and so ≤ ⌊w + ½⌋: the interval is kept. ∎
        """
        return round(self.value), math.floor(self.plus_minus + 0.5)

    @property
    def shown(self) -> tuple[float | None, float | None]:
        """Both rounded to the digits that the noise leaves, the error up; None for NaN."""
        if not (math.isfinite(self.value) and math.isfinite(self.plus_minus)):
            return None, None
        if self.plus_minus <= 0:
            return self.value, 0.0
        step = 10.0 ** (math.floor(math.log10(self.plus_minus)) + 1 - _DIGITS)
        steps = round(self.value / step), math.ceil(self.plus_minus / step)
        value, plus_minus = (float(f"{each * step:.12g}") for each in steps)
        return value, plus_minus


@dataclass(frozen=True)
class SummaryFigures:
    """The figures of a released summary."""

    summary: StoredSummary

    @cached_property
    def columns(self) -> dict[str, ViewedColumn]:
        """The columns by name."""
        return columns_of(self.summary)

    @cached_property
    def sums(self) -> OneWay:
        """The means of all coordinates over the slots."""
        size, columns = len(self.summary.mean), self.columns.values()
        flags, signs = np.zeros(size), np.zeros(size)
        for column in columns:
            flags[list(column.flags)], signs[list(column.signs)] = 1.0, 1.0
        partitions = [np.array(column.coordinates) for column in columns if column.coordinates]
        return one_way(self.summary.mean, self.summary.constant, partitions, flags, signs)

    @property
    def everything(self) -> np.ndarray:
        """The vector u of all rows."""
        return np.eye(len(self.summary.mean))[self.summary.constant]

    def count(self, level: np.ndarray) -> Figure:
        """Return the number of rows of a level, given as u."""
        deviation = math.sqrt(max(0.0, level @ self.sums.covariance @ level))
        return self._in_rows(level @ self.sums.means, deviation)

    def cell(self, first: np.ndarray, second: np.ndarray) -> Figure:
        """Return the number of rows of two levels, given as u and v: uᵀMv."""
        return self._in_rows(first @ self.summary.mean @ second, math.sqrt(_product(first, second, first, second)))

    def mean(self, number: Number) -> Figure:
        """Return the mean of a number over all rows that have it."""
        pairs = np.array([number.vector, number.present])
        return self._ratio(number, pairs @ self.sums.means, pairs @ self.sums.covariance @ pairs.T)

    def group_mean(self, number: Number, level: np.ndarray) -> Figure:
        """Return the mean of a number over the rows of a level, given as u."""
        pairs = number.vector, number.present
        values = np.array([level @ self.summary.mean @ each for each in pairs])
        covariance = np.array([[_product(level, one, level, other) for other in pairs] for one in pairs])
        return self._ratio(number, values, covariance)

    def deviation(self, number: Number) -> Figure:
        """Return the standard deviation of a number over all rows that have it.

        V = q/n - m² for the sum of squares q = uᵀMu: to first order n·dV = dq - 2m·dt + (m² - V)dn. The interval of V
        maps to that of √V, since it is monotone.
        """
        mean, count = (each @ self.sums.means for each in (number.vector, number.present))
        mean, square = mean / count, number.vector @ self.summary.mean @ number.vector
        variance = square / count - mean**2
        away = (mean**2 - variance) * number.present - 2 * mean * number.vector
        spread = _product(number.vector, number.vector, number.vector, number.vector)
        spread += 2 * away @ self.sums.overlap(number.vector) + away @ self.sums.covariance @ away
        half = WIDTHS * self.summary.scale * math.sqrt(max(spread, 0.0)) / count
        if math.isnan(self.mean(number).plus_minus):
            return Figure(math.nan, math.nan)
        least, root, most = (math.sqrt(max(0.0, each)) for each in (variance - half, variance, variance + half))
        return Figure(number.length * root, number.length * max(root - least, most - root))

    def _in_rows(self, share: float, deviation: float) -> Figure:
        return Figure(share * self.summary.slots, WIDTHS * self.summary.scale * deviation * self.summary.slots)

    def _ratio(self, number: Number, values: np.ndarray, covariance: np.ndarray) -> Figure:
        """Return t/n in the units of the column, from noisy t and n and their covariance, divided by s².

        Fieller's interval: the m with (t - mn)² ≤ q²Var(t - mn), which holds the true m in 95 of 100 releases, exactly.
        It is a finite one if n is above its own error; else noise hides the mean.
        """
        (total, count), spread = values, covariance * (WIDTHS * self.summary.scale) ** 2
        square = count**2 - spread[1, 1]
        if count <= 0 or square <= 0:
            return Figure(math.nan, math.nan)
        middle = (total * count - spread[0, 1]) / square
        reach = math.sqrt(max(0.0, middle**2 - (total**2 - spread[0, 0]) / square))
        value = total / count
        return Figure(number.origin + number.length * value, number.length * (abs(value - middle) + reach))


def _product(first: np.ndarray, second: np.ndarray, third: np.ndarray, fourth: np.ndarray) -> float:
    """Return the covariance of uᵀEv and sᵀEt, divided by s²: (⟨u,s⟩⟨v,t⟩ + ⟨u,t⟩⟨v,s⟩)/2."""
    return float((first @ third) * (second @ fourth) + (first @ fourth) * (second @ third)) / 2
