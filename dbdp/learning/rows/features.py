"""Features: how the value of a column with public bounds or categories becomes coordinates.

Everything here is a function of one value and of public facts. Prediction imports this module, so it imports only
the standard library.

Shapes: a numeric column is one coordinate, its relative position between its bounds, or one for each of its bins, or
one for each of its knots: a model of these is a piecewise linear curve.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

SCALED, UNIT, CENTRED = "scaled", "unit", "centred"
ENCODINGS = (SCALED, UNIT, CENTRED)
LINEAR, ASINH = "linear", "asinh"
SCALES = (LINEAR, ASINH)
REQUIRED, INDICATOR, CATEGORY, OUTSIDE = "required", "indicator", "category", "outside"  # meanings of NULL
ABSENT = "missing"  # names the coordinate of NULL, as a category does that of its rows
STEEPNESS = 1000.0  # of the asinh scale: linear within a thousandth of the width around its centre, logarithmic beyond


@dataclass(frozen=True)
class Numeric:
    """A numeric column with public bounds; values outside are clipped to them."""

    column: str  # name of the column
    # lower, upper: the bounds.
    lower: float
    upper: float
    # Number of bins, at least 2, of equal width on the scale; each is [from, to), except that the last includes the
    # upper bound. 0 is one coordinate without bins.
    bins: int = 0
    # Number of knots, at least 2, evenly spaced on the scale from bound to bound: a number between two of them has the
    # coordinates 1 - f and f there, f its relative position, and 0 at the others. 0 is no knots; excludes bins.
    knots: int = 0
    scale: str = LINEAR  # `linear`, or `asinh` for a range of several orders of magnitude, see `position`
    # The public number that NULL, or a number that is not finite, counts as; None makes the row a zero row.
    missing: float | None = None
    indicator: bool = False  # whether one more coordinate, the last one, is 1 for NULL and 0 for a number

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return (self.bins or self.knots or 1) + self.indicator

    @property
    def is_flag(self) -> bool:
        """Whether the bounds are 0 and 1: a number with one coordinate is then an indicator."""
        return (self.lower, self.upper) == (0.0, 1.0)

    @property
    def is_shared(self) -> bool:
        """Whether the coordinates of a number add up to 1: those of bins or knots."""
        return bool(self.bins or self.knots)

    @property
    def names(self) -> list[str]:
        """A name for each coordinate."""
        knots = [f"{self.column}={text}" for text in texts_of(self.values_at_knots)]
        return [*(self.bin_names or knots or [self.column]), *[f"{self.column}={ABSENT}"] * self.indicator]

    @property
    def bin_names(self) -> list[str]:
        """A name for each bin."""
        if not self.bins:
            return []
        ends = texts_of((self.lower, *self.edges, self.upper))
        closings = [")"] * (self.bins - 1) + ["]"]
        pairs = zip(ends, ends[1:], closings, strict=False)
        return [f"{self.column}=[{first},{last}{closing}" for first, last, closing in pairs]

    @property
    def bend(self) -> tuple[float, float] | None:
        """Centre c and factor a of the scale asinh(a(x - c)); None for a linear scale.

        The centre is the number within the bounds that is nearest to 0, where values that span orders of magnitude
        are dense; a is STEEPNESS divided by the width of the bounds.
        """
        if self.scale == LINEAR:
            return None
        return min(max(0.0, self.lower), self.upper), STEEPNESS / (self.upper - self.lower)

    def position(self, value: float) -> float:
        """Return the position on the column's scale of a finite number, clipped to the bounds."""
        clipped = min(max(value, self.lower), self.upper)
        if self.bend is None:
            return clipped
        centre, factor = self.bend
        return math.asinh((clipped - centre) * factor)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The positions of the bounds."""
        return self.position(self.lower), self.position(self.upper)

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """Lower edges of the bins except the first, in the column's units, increasing; shape (bins - 1,)."""
        return self._values(self._between(self.bins)[1:-1])

    @cached_property
    def positions_of_knots(self) -> tuple[float, ...]:
        """Positions of the knots on the scale, increasing; shape (knots,)."""
        return tuple(self._between(self.knots - 1)) if self.knots else ()

    @cached_property
    def values_at_knots(self) -> tuple[float, ...]:
        """The knots in the column's units, increasing: the bounds are the first and the last; shape (knots,)."""
        return (self.lower, *self._values(self.positions_of_knots[1:-1]), self.upper) if self.knots else ()

    def _between(self, parts: int) -> list[float]:
        """Return the positions at which so many equal parts of the scale begin and end."""
        least, most = self.ends
        return [least + (most - least) * (number / parts) for number in range(parts + 1)]

    def _values(self, positions: Sequence[float]) -> tuple[float, ...]:
        """Return the numbers at positions on the scale."""
        if self.bend is None:
            return tuple(positions)
        centre, factor = self.bend
        return tuple(centre + math.sinh(position) / factor for position in positions)

    def affine(self, encoding: str) -> tuple[float, float]:
        """Return (origin, length): a position p becomes the coordinate (p - origin) / length.

        It is in [-1, 1], and 0 at the middle of the bounds. With the encoding `scaled`, and for a column with bounds 0
        and 1 with `unit`, as an indicator, it is in [0, 1], and 0 at the lower bound.
        """
        least, most = self.ends
        if encoding == SCALED or (encoding == UNIT and self.is_flag):
            return least, most - least
        return least / 2.0 + most / 2.0, (most - least) / 2.0

    def least(self, encoding: str) -> float:
        """Return the coordinate of the lower bound of a number with one coordinate: 0 or -1; the upper one's is 1."""
        return 0.0 if self.affine(encoding)[0] == self.ends[0] else -1.0

    def affine_of_each(self, encoding: str) -> list[tuple[float, float]]:
        """Return the (origin, length) of each coordinate; those that are 0 or 1 are unchanged."""
        unchanged = [(0.0, 1.0)]
        return (unchanged * (self.bins or self.knots) or [self.affine(encoding)]) + unchanged * self.indicator

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return self.lower / 2.0 + self.upper / 2.0

    @property
    def null(self) -> float | str:
        """What NULL means, as an owner declares it."""
        return REQUIRED if self.missing is None else INDICATOR if self.indicator else self.missing

    @property
    def declared(self) -> list[float] | dict[str, object]:
        """The column as `dbdp.registry.declarations.declare` accepts it."""
        bounds = [self.lower, self.upper]
        coding: dict[str, object] = {} if self.scale == LINEAR else {"scale": self.scale}
        if self.bins:
            coding["bins"] = self.bins
        if self.knots:
            coding["knots"] = self.knots
        if self.null != self.middle:
            coding["missing"] = self.null
        return {"bounds": bounds} | coding if coding else bounds


@dataclass(frozen=True)
class Categorical:
    """A column with public categories; any other value belongs to none of them."""

    column: str
    categories: tuple[str, ...]
    # What NULL means: REQUIRED makes the row a zero row, OUTSIDE is no category, CATEGORY is one more, the last one.
    null: str = REQUIRED

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.values)

    @property
    def values(self) -> tuple[str, ...]:
        """A word for each coordinate: the categories, and that of NULL if it is one."""
        return (*self.categories, *[ABSENT] * (self.null == CATEGORY))

    @property
    def declared(self) -> list[str] | dict[str, object]:
        """The column as `dbdp.registry.declarations.declare` accepts it."""
        categories = list(self.categories)
        return categories if self.null == OUTSIDE else {"categories": categories, "missing": self.null}


@dataclass(frozen=True)
class Vector:
    """One float8[] or float4[] column of a public length, with a public bound on its L2 norm."""

    column: str
    length: int
    norm_bound: float


def texts_of(numbers: Sequence[float]) -> list[str]:
    """Return numbers with six digits, or with as many as tell all of them apart."""
    texts: list[str] = []
    for digits in (6, 8, 10, 13, 17):
        texts = [f"{number:.{digits}g}" for number in numbers]
        if len(set(texts)) == len(set(numbers)):
            break
    return texts


def constant_of(length: int) -> float:
    """Return the constant beside an array that is divided by its bound, in rows of norm 1: 1/length^¼.

    A constant of 1 is as long as the longest array, and numbers that are far from the bound, such as pixels, hardly
    count beside it; one of 1/√length is as long as one element, and is learned slowly beside an array as long as the
    bound. This is their geometric mean.
    """
    return 1.0 / math.sqrt(math.sqrt(length))
