"""Figures of a released describe: post-processing, each with half the width of the 95 % interval of its noise.

Shapes: a block is that of a column in a release, see `describing`.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dbdp.algorithms.scores.counting import quotient, widths_of
from dbdp.statistics import prefix_sums
from dbdp.statistics.coded_columns import EVERY, CategoryCode, NumberCode
from dbdp.statistics.describing import SQUARED, DescribePlan
from dbdp.statistics.quantile_figures import quantiles
from dbdp.statistics.stepped_noise import WIDTHS

QUARTILES = (0.25, 0.5, 0.75)
_DRAWS = 500  # of noise, for the interval of a quotient
NAMES: tuple[str, ...] = (
    "column_name",
    "value",
    "count",
    "count_noise",
    "nulls",
    "share",
    "share_noise",
    "mean",
    "mean_noise",
)
NAMES += ("sd", "sd_noise", "q25", "q50", "q75", "outside", "outside_noise")


def figures_of(plan: DescribePlan, noisy: np.ndarray) -> list[dict[str, Any]]:
    """Return a row for all rows, one for each number, and one for each value of a category."""
    total, width = float(noisy[-1]), WIDTHS * plan.noise.scale / plan.rows_weight
    if plan.population.is_full:
        total, width = float(plan.population.units), 0.0
    rows: list[dict[str, Any]] = [{"column_name": EVERY} | _count(plan, total, width)]
    for code, block in plan.blocks(noisy):
        if isinstance(code, NumberCode):
            rows.append(_of_number(plan, code, block))
        else:
            rows.extend(_of_category(plan, code, block, total, width))
    return [{name: row.get(name) for name in NAMES} for row in rows]


def _count(plan: DescribePlan, value: float, width: float) -> dict[str, float]:
    """Return a count and its ±; whole where rows are counted."""
    return {"count": plan.population.counted(float(value)), "count_noise": math.ceil(width)}


def _of_category(
    plan: DescribePlan, code: CategoryCode, block: np.ndarray, total: float, width: float
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a column's categories, then those of other values and of NULL."""
    spread = width / WIDTHS
    for place in [*range(2, len(block)), 1, 0]:
        pair, scales = np.array([block[place], total]), np.array([plan.noise.scale, spread])
        shares, noise = _with_widths(lambda sums: quotient(sums[:, :1], sums[:, 1:]), pair, scales)
        yield {
            "column_name": code.column,
            "value": code.words[place],
            **_count(plan, block[place], plan.half_width),
            **with_noise("share", shares[0], noise[0]),
        }


def _of_number(plan: DescribePlan, code: NumberCode, block: np.ndarray) -> dict[str, Any]:
    """Return the row of a number."""
    nulls, moments, cells = block[0], block[1:4], block[4:]

    def means(sums: np.ndarray) -> np.ndarray:
        mean, square = quotient(sums[:, 1:], sums[:, :1]).T
        spread = square - mean**2
        return np.column_stack([mean, np.sqrt(np.where(spread > 0, spread, np.nan))]) * code.half

    values, widths = _with_widths(means, moments, plan.noise.scale / np.array([1.0, 1.0, SQUARED]))
    mean = min(max(values[0] + code.middle, code.lower), code.upper)
    outer = prefix_sums.inverse(code.cells)[[0, -1, -2]] * [[1], [1], [-1]]
    return {
        "column_name": code.column,
        **_count(plan, moments[0], plan.half_width),
        "nulls": _count(plan, nulls, 0.0)["count"],
        **with_noise("mean", mean, widths[0]),
        **with_noise("sd", values[1], widths[1]),
        **dict(zip(("q25", "q50", "q75"), quantiles(code, cells, QUARTILES), strict=True)),
        "outside": _count(plan, float(outer.sum(axis=0) @ cells), 0.0)["count"],
        "outside_noise": math.ceil(plan.half_width * float(np.linalg.norm(outer.sum(axis=0)))),
    }


def _with_widths(
    figures: Callable[[np.ndarray], np.ndarray], values: np.ndarray, scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return figures (f,) of values with independent normal noise of these scales (k,), and half their widths.

    `figures` maps many vectors of values, (m, k), to their figures, (m, f), NaN for one that is undefined.
    """
    own = figures(values[None])[0]
    noise = np.random.default_rng().normal(0.0, 1.0, (_DRAWS, len(values)))
    return own, widths_of(figures(values + noise * scales), own)


def with_noise(name: str, value: float, width: float) -> dict[str, float | None]:
    """Return a figure and its ±, to a hundredth of the ±; None where the noise hides it."""
    if not (math.isfinite(value) and math.isfinite(width)):
        return {name: None, f"{name}_noise": None}
    digits = 2 - math.floor(math.log10(width)) if width > 0 else 15
    return {name: round(float(value), digits), f"{name}_noise": float(f"{width:.2g}")}
