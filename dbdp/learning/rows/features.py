"""Features: what the public bounds or categories of a column make coordinates of.

Everything here is a function of one value and of public facts. Prediction imports this module, so it needs nothing
but the standard library.

Shapes: a numeric column is one coordinate, its share of the way between its bounds, or one for each of its bins.
"""

import math
from dataclasses import dataclass
from functools import cached_property

SCALED, UNIT, CENTRED = "scaled", "unit", "centred"
ENCODINGS = (SCALED, UNIT, CENTRED)
LINEAR, ASINH = "linear", "asinh"
SCALES = (LINEAR, ASINH)
STEEPNESS = 1000.0  # of the asinh scale: linear within a thousandth of the width around its centre, logarithmic beyond


@dataclass(frozen=True)
class Numeric:
    """A numeric column with public bounds; values outside are clipped to them.

    Attributes
    ----------
    column : str
        Its name.
    lower, upper : float
        The bounds.
    bins : int
        B ≥ 2 bins of equal width on the scale, each [from, to) but the last, which includes the upper bound; 0 for one
        coordinate.
    scale : str
        `linear`, or `asinh` for a range of several orders of magnitude, see `position`.
    """

    column: str
    lower: float
    upper: float
    bins: int = 0
    scale: str = LINEAR

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return self.bins or 1

    @property
    def names(self) -> list[str]:
        """A name for each coordinate."""
        if not self.bins:
            return [self.column]
        ends = [f"{end:.6g}" for end in (self.lower, *self.edges, self.upper)]
        closings = [")"] * (self.bins - 1) + ["]"]
        pairs = zip(ends, ends[1:], closings, strict=False)
        return [f"{self.column}=[{first},{last}{closing}" for first, last, closing in pairs]

    @property
    def bend(self) -> tuple[float, float] | None:
        """Centre c and factor a of the scale asinh(a(x - c)); None for a linear one.

        The centre is the number within the bounds that is nearest to 0, since what spans orders of magnitude is
        dense there; a is STEEPNESS over the width.
        """
        if self.scale == LINEAR:
            return None
        return min(max(0.0, self.lower), self.upper), STEEPNESS / (self.upper - self.lower)

    def position(self, value: float) -> float:
        """Return where a finite number is on the column's scale, within the bounds."""
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
        """Where each bin but the first begins, in the column's units, rising; shape (bins - 1,)."""
        least, most = self.ends
        positions = [least + (most - least) * (number / self.bins) for number in range(1, self.bins)]
        if self.bend is None:
            return tuple(positions)
        centre, factor = self.bend
        return tuple(centre + math.sinh(position) / factor for position in positions)

    def affine(self, encoding: str) -> tuple[float, float]:
        """Return (origin, length): a position p becomes the coordinate (p - origin) / length.

        It is in [-1, 1], and 0 at the middle of the bounds; `scaled`, and where a number of a row of norm 1 is from 0
        to 1, as an indicator is, it is in [0, 1], and 0 at the lower bound.
        """
        least, most = self.ends
        if encoding == SCALED or (encoding == UNIT and (self.lower, self.upper) == (0.0, 1.0)):
            return least, most - least
        return least / 2.0 + most / 2.0, (most - least) / 2.0

    @property
    def declared(self) -> list[float] | dict[str, object]:
        """The column as `dbdp.registry.declarations.declare` reads it."""
        bounds = [self.lower, self.upper]
        coding: dict[str, object] = {} if self.scale == LINEAR else {"scale": self.scale}
        if self.bins:
            coding["bins"] = self.bins
        return {"bounds": bounds} | coding if coding else bounds


@dataclass(frozen=True)
class Categorical:
    """A column with public categories; any other value has none of them."""

    column: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Vector:
    """One float8[] or float4[] column of a public length, with a public bound on its L2 norm."""

    column: str
    length: int
    norm_bound: float
