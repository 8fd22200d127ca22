"""Figures of released tables: post-processing, each with half the width of the 95 % interval of its noise.

Tables with margins are made to agree by exact least squares, in orthogonal components (analysis of variance): the
component of a set of columns is a table's mean over all its other columns, less that of each smaller set. Shapes: a
table (figures, sizes of its axes).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dbdp.algorithms.scores.counting import quotient, widths_of
from dbdp.statistics.coded_columns import EVERY
from dbdp.statistics.column_figures import with_noise
from dbdp.statistics.crosstabs import Subset, TablePlan

_DRAWS = 20_000  # of noise, for the interval of a count
_FEW = 1000  # for that of each mean
_EXACT = 1e-9  # variance of a number that is public, beside that of noise


def figures_of(plan: TablePlan, noisy: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield a row for each group and figure, the largest table first, and the number of all rows last."""
    measured = dict(plan.split(noisy))
    if plan.population.is_full:
        noisy = np.append(noisy[:-1], plan.population.units)
    if not plan.measures:
        measured[()] = np.array([noisy[-1]])
    known: dict[Subset, float] = {(): _EXACT} if plan.population.is_full and not plan.measures else {}
    tables, spreads = _consistent(plan, measured, known) if plan.margins else (measured, dict.fromkeys(measured, 1.0))
    for table, numbers in tables.items():
        if plan.margins or table or not plan.axes:
            spread = 0.0 if table in known else spreads[table]
            yield from _rows(plan, table, numbers, spread * plan.scale)
    if not plan.margins and plan.axes:
        width = 0.0 if plan.population.is_full else plan.half_width / (math.sqrt(2) if plan.measures else 1.0)
        groups = [EVERY] * len(plan.axes)
        yield {"groups": groups, "figure": "count"} | _count(plan, float(noisy[-1]), width)


def _consistent(
    plan: TablePlan, measured: Mapping[Subset, np.ndarray], known: Mapping[Subset, float]
) -> tuple[dict[Subset, np.ndarray], dict[Subset, float]]:
    """Return tables that agree, and the standard deviation of a cell of each, in that of a measured one.

    A measured table is f times the mean table over the columns that it lacks, f the product of their sizes. So its
    component of a set c has a variance of v/(f²·Π sizes of its axes outside c), and they are averaged by that.
    """
    sizes = [axis.size for axis in plan.axes]
    lacking = {table: math.prod(sizes) / plan.cells_of(table) for table in measured}
    found = {part: _component(plan, part, measured, lacking, known) for part in measured}
    tables, spreads = {}, {}
    for table in measured:
        shape = (len(next(iter(measured.values()))), *(sizes[place] for place in table))
        parts = [part for part in measured if set(part) <= set(table)]
        values = [_spread_out(found[part][0], part, table) for part in parts]
        tables[table] = lacking[table] * np.broadcast_to(sum(values), shape)
        spreads[table] = lacking[table] * math.sqrt(sum(found[part][1] for part in parts))
    return tables, spreads


def _component(
    plan: TablePlan,
    part: Subset,
    measured: Mapping[Subset, np.ndarray],
    lacking: Mapping[Subset, float],
    known: Mapping[Subset, float],
) -> tuple[np.ndarray, float]:
    """Return the component of a set of columns, averaged over the tables that have them all, and its variance."""
    total, weight = np.zeros(()), 0.0
    for table, numbers in measured.items():
        if set(part) <= set(table):
            outside = tuple(place for place, axis in enumerate(table, 1) if axis not in part)
            each = lacking[table] ** 2 * plan.cells_of(table) / plan.cells_of(part) / known.get(table, 1.0)
            total, weight = total + each * numbers.mean(axis=outside) / lacking[table], weight + each
    centred = total / weight
    for place in range(1, len(part) + 1):
        centred = centred - centred.mean(axis=place, keepdims=True)
    return centred, math.prod(1 - 1 / plan.axes[axis].size for axis in part) / weight


def _spread_out(component: np.ndarray, part: Subset, table: Subset) -> np.ndarray:
    """Return a component with the axes of a table; it is the same along those that are not its own."""
    added = tuple(place for place, axis in enumerate(table, 1) if axis not in part)
    return np.expand_dims(component, added)


def _rows(plan: TablePlan, table: Subset, numbers: np.ndarray, scale: float) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table: its count in each group, and its means."""
    draws = _noise(plan, (_DRAWS, 2), scale)
    counted = draws[:, :1] if not plan.measures else draws
    width = float(widths_of(counted.sum(axis=1, keepdims=True), np.zeros(1))[0])
    if plan.step == 1 and not plan.margins:
        width = plan.half_width
    for cell in np.ndindex(numbers.shape[1:]):
        words = dict(zip(table, cell, strict=True))
        groups = [axis.words[words[place]] if place in words else EVERY for place, axis in enumerate(plan.axes)]
        here = numbers[(slice(None), *cell)]
        yield {"groups": groups, "figure": "count"} | _count(
            plan, float(here[:2].sum() if plan.measures else here[0]), width
        )
        for place, code in enumerate(plan.measures):
            own, spread = here[3 * place + 1 : 3 * place + 3], _noise(plan, (_FEW, 2), scale)
            mean = quotient(own[1], own[0]) * code.half
            moved = quotient(own[1] + spread[:, 1], own[0] + spread[:, 0]) * code.half
            noise = float(widths_of(moved[:, None], np.array([mean]))[0])
            shown = with_noise("value", min(max(float(mean) + code.middle, code.lower), code.upper), noise)
            yield {"groups": groups, "figure": f"mean {code.column}", "value": shown["value"]} | {
                "plus_minus": shown["value_noise"]
            }


def _noise(plan: TablePlan, shape: tuple[int, int], scale: float) -> np.ndarray:
    """Return noise of a standard deviation, of the law of the mechanism; of sums of it the wider one."""
    random = np.random.default_rng()
    return random.normal(0.0, scale, shape) if plan.delta else random.laplace(0.0, scale / math.sqrt(2), shape)


def _count(plan: TablePlan, value: float, width: float) -> dict[str, float]:
    """Return a count and its ±; whole where rows are counted."""
    return {"value": plan.population.counted(value), "plus_minus": math.ceil(width)}
