"""Monotone constraints: numbers that may only raise a score, or only lower it.

They are public facts of a request. Shapes: models (outputs, dimension), over packed rows; shares (dimension - 1,), the
mean of each coordinate before the division by the radius.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from dbdp.checks import nearest
from dbdp.learning.rows.column_blocks import INDICATOR, RowBlocks
from dbdp.learning.rows.features import Categorical, Numeric
from dbdp.learning.rows.pairs import LONGEST_TEXT, Names

RISING, FALLING = 1, -1
LEAST_SHARE = 1e-3  # of a column's rows, divided among its cells: what noise shows as less counts as that
_EXAMPLE = """give a JSON object such as '{"age": 1, "hours": -1}', 1 for rising and -1 for falling"""


def directions(text: Any, columns: Sequence[Numeric | Categorical], pairs: Sequence[Names]) -> dict[str, int]:
    """Return the direction of each named number; raise ValueError unless all are declared, and are in no pair."""
    if text is None:
        return {}
    named, numbers = _parsed(text), [each.column for each in columns if isinstance(each, Numeric)]
    for name, direction in named.items():
        if name not in numbers:
            is_category = name in [each.column for each in columns]
            fault = f"{name!r}, a column of categories, which have no order" if is_category else f"{name!r}"
            rest = f"use declared numbers: {', '.join(numbers) or 'here none'}{nearest(name, numbers)}"
            raise ValueError(f"monotone names {fault}; {rest}")
        if isinstance(direction, bool) or direction not in (RISING, FALLING):
            raise ValueError(f"monotone has {direction!r} for {name!r}; {_EXAMPLE}")
        if pair := next((pair for pair in pairs if name in pair), None):
            raise ValueError(
                f"monotone names {name!r}, which is in the pair {'*'.join(pair)}, and cells have no order; leave out "
                "the pair, or the constraint"
            )
    return {name: int(direction) for name, direction in named.items()}


def _parsed(text: Any) -> dict[str, Any]:
    """Return a JSON object with at least one entry."""
    try:
        found = json.loads(text[: LONGEST_TEXT + 1])
    except (TypeError, ValueError, RecursionError):  # no string, not JSON, or nested too deeply
        found = None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"monotone = {text!r} names no columns; {_EXAMPLE}, or leave it out")
    return found


def monotone_models(models: np.ndarray, rows: RowBlocks, shares: np.ndarray) -> np.ndarray:
    """Return the nearest models of one output that keep the directions of the blocks, with the same mean score.

    Near and mean are in the sense of the shares, of which none counts as less than LEAST_SHARE of its column's.
    """
    models, start = models.copy(), 0
    for block in rows.blocks:
        end = start + block.width
        own = models[0, start:end]
        if block.direction and block.kind == INDICATOR:
            if own[0] * block.direction < 0:
                models[0, -1] += own[0] * shares[start]
                own[0] = 0.0
        elif block.direction:
            weights = np.maximum(shares[start:end], LEAST_SHARE / block.width)
            own[:] = block.direction * isotonic(block.direction * own, weights)
        start = end
    return models


def isotonic(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the non-decreasing numbers (m,) that are nearest to values, by weighted squares.

    Pool adjacent violators: neighbours in the wrong order become their mean, so that the weighted mean of all stays.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight and length
    for pool in zip(values.tolist(), weights.tolist(), [1] * len(values), strict=True):
        pools.append(pool)
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (one, first, length), (other, second, more) = pools[-2:]
            mean = one + (other - one) * (second / (first + second))
            pools[-2:] = [(mean, first + second, length + more)]
    return np.repeat([mean for mean, _, _ in pools], [length for _, _, length in pools])
