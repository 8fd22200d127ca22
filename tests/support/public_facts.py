"""Public facts of a table, for every algorithm: those of additive models need the columns of a row too."""

import math
from typing import Any

from short import OF_COLUMNS

from dbdp.algorithms import Facts
from dbdp.algorithms.families.preconditioned.spline_descent import KNOTS
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, MOST_WIDTH, ColumnBlock, RowBlocks


def facts_of(rows: int, dimension: int, *others: Any, **more: Any) -> Facts:
    """The facts of one categorical column and an intercept."""
    blocks = RowBlocks((ColumnBlock(CATEGORY, min(max(1, dimension - 1), MOST_WIDTH)),), math.sqrt(2))
    return Facts(rows, dimension, *others, **{"blocks": blocks} | more)


def facts_of_clinic(algorithm: str, rows: int, **more: Any) -> Facts:
    """The facts of a number and a column of two categories: a coordinate of the number, or its knots."""
    if algorithm not in OF_COLUMNS:
        return Facts(rows, 1 + 2 + 1, **more)
    blocks = RowBlocks((ColumnBlock(CURVE, KNOTS), ColumnBlock(CATEGORY, 2)), math.sqrt(3))
    return Facts(rows, KNOTS + 2 + 1, blocks=blocks, **more)
