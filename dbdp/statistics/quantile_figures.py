"""Quantiles of a number, with intervals, from the noisy prefix sums of its cells (privacy.md §25.3, §25.7)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dbdp.checks import is_number
from dbdp.statistics import prefix_sums
from dbdp.statistics.coded_columns import NumberCode
from dbdp.statistics.stepped_noise import WIDTHS

_MOST = 1000  # quantiles at a time


def checked(probabilities: Any) -> list[float]:
    """Return probabilities between 0 and 1; raise ValueError for others."""
    listed = probabilities if isinstance(probabilities, list) else []
    if not 0 < len(listed) <= _MOST or not all(is_number(each) and 0 < each < 1 for each in listed):
        raise ValueError(
            f"quantiles = {probabilities!r} must be up to {_MOST} numbers between 0 and 1; a least or largest number "
            "is never private: choose quantiles such as 0.01 and 0.99, or call dbdp.dp_bounds"
        )
    return [float(each) for each in listed]


def quantiles(code: NumberCode, noisy: np.ndarray, probabilities: Sequence[float]) -> list[float | None]:
    """Return quantiles from a noisy A·h: an increasing fit to the prefix sums, and a straight line in each cell."""
    sums = _increasing(noisy)
    if sums[-1] <= 0:
        return [None for _ in probabilities]
    return [_place(code, sums, probability * sums[-1]) for probability in probabilities]


def with_intervals(
    code: NumberCode, noisy: np.ndarray, scale: float, probabilities: Sequence[float]
) -> list[dict[str, float | None]]:
    """Return quantiles with the 95 % interval of noise of this standard deviation on A·h.

    The number at which F reaches pF(∞) is in the interval whenever the noise of F - pF(∞) there, which is normal with a
    public deviation, is within 1.96 of it: so each interval holds its quantile in 19 of 20 releases.
    """
    sums, matrix = _increasing(noisy), prefix_sums.inverse(code.cells)
    rows: list[dict[str, float | None]] = []
    for probability, value in zip(probabilities, quantiles(code, noisy, probabilities), strict=True):
        width = WIDTHS * scale * np.linalg.norm(matrix - probability * matrix[-1], axis=1)
        level = probability * sums[-1]
        above, below = np.maximum.accumulate(sums + width), np.minimum.accumulate((sums - width)[::-1])[::-1]
        ends = (None, None) if value is None else (_place(code, above, level), _place(code, below, level))
        rows.append({"quantile": probability, "value": value, "lower": ends[0], "upper": ends[1]})
    return rows


def _increasing(noisy: np.ndarray) -> np.ndarray:
    fitted: np.ndarray = np.maximum(prefix_sums.increasing(prefix_sums.prefixes(noisy)), 0.0)
    return fitted


def _place(code: NumberCode, sums: np.ndarray, level: float) -> float:
    """Return the least number at which increasing prefix sums reach a level; a bound for the cells outside."""
    cell = int(np.searchsorted(sums, level))
    if cell == 0 or cell > code.inner:
        return code.lower if cell == 0 else code.upper
    if code.is_whole:
        return code.lower + cell - 1
    begin, end = code.edges[cell - 1 : cell + 1].tolist()
    before, after = sums[cell - 1], sums[cell]
    place = begin + (end - begin) * (level - before) / (after - before) if after > before else begin
    return round(float(place), 2 - math.floor(math.log10(end - begin))) if end > begin else float(place)
