"""Public facts of a table, for every algorithm: those of additive models need the columns of a row too."""

import math
from typing import Any

from dbdp.algorithms import Facts
from dbdp.learning.rows.column_blocks import CATEGORY, ColumnBlock, RowBlocks


def facts_of(rows: int, dimension: int, *others: Any, **more: Any) -> Facts:
    """The facts of one categorical column and an intercept."""
    blocks = RowBlocks((ColumnBlock(CATEGORY, max(1, dimension - 1)),), math.sqrt(2))
    return Facts(rows, dimension, *others, **{"blocks": blocks} | more)
