"""The blocks of a row's coordinates that belong to one column each, as public facts."""

from dataclasses import dataclass

from dbdp.checks import unknown, whole

CURVE, CATEGORY, INDICATOR = "curve", "category", "indicator"
KINDS = (CURVE, CATEGORY, INDICATOR)
MOST_WIDTH = 1 << 20


@dataclass(frozen=True)
class ColumnBlock:
    """The coordinates of one column, which follow one another in a row.

    `curve` is a number with knots, `category` has one coordinate that is not 0, or none, and `indicator` is the one
    coordinate of a value that is 0 or 1.
    """

    kind: str
    width: int  # number of coordinates
    least: float = 0.0  # the coordinate of an indicator that is 0
    size: float = 1.0  # the coordinate of a category that is there, or of an indicator that is 1
    prior: float = 1.0  # how many times the prior variance of a column's categories these have
    groups: int = 0  # of a pair's first column, if the categories are the cells of a pair
    direction: int = 0  # 1 if a score may only rise with the column's number, -1 if only fall: `monotone`

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown kind, or more coordinates than a row may have."""
        if self.kind not in KINDS:
            raise ValueError(unknown("kind of a block", self.kind, KINDS))
        whole("width of a block", self.width, 2 if self.kind == CURVE else 1, MOST_WIDTH)

    @property
    def moments(self) -> int:
        """Number of second moments that are not 0 for all rows; an indicator has a count of 0 and of 1."""
        if self.kind == CURVE:
            return 2 * self.width - 1
        return self.width if self.kind == CATEGORY else 2


@dataclass(frozen=True)
class RowBlocks:
    """The blocks of a row, in its order, without the constant behind them; a packed row is divided by `radius`."""

    blocks: tuple[ColumnBlock, ...]
    radius: float
