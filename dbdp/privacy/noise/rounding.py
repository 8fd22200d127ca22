"""Continuous noise, exactly rounded to integers: real numbers are enclosed in balls until the rounding is certain.

privacy.md §2(ii). A uniform real number is an infinite sequence of random bits, of which only the first are
drawn; ball arithmetic (FLINT's arb) encloses every number that is computed from it. Where a ball contains a
half-integer, more bits are drawn, and the precision is raised. So the law of the integers is that of the
rounded real numbers, at total variation distance 0.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Protocol, Self

from flint import arb

from dbdp.privacy.noise.balls import precision
from dbdp.privacy.noise.samplers import Entropy

_GUARD = 32  # bits of precision beyond those of the numbers: the arithmetic widens a ball by less than they do
_SPARE = 32  # bits drawn at first beyond those of the integers: fewer than one vector in 2²⁵ needs more
_FACTORS = 16  # integers that are multiplied before the product is converted to a ball
_HALF = arb(0.5)


class Enclosed(Protocol):
    """Real numbers that can be enclosed as tightly as needed."""

    known: int  # bits of each number drawn so far, at least

    def balls(self, bits: int) -> list[arb]:
        """Return a ball around each number, from its first `bits` bits, at least `known`."""


class Uniforms:
    """Independent uniform real numbers in [0, 1], whose bits are drawn when needed."""

    def __init__(self, count: int, entropy: Entropy) -> None:
        self._entropy = entropy
        self.known = 0
        self._leading = [0] * count

    @classmethod
    def begun(cls, leading: Iterable[int], known: int, entropy: Entropy) -> Self:
        """Return numbers whose first `known` bits are these integers."""
        numbers = cls(0, entropy)
        numbers._leading, numbers.known = list(leading), known
        return numbers

    def balls(self, bits: int) -> list[arb]:
        """Return the ball [v, v + 1]·2^-bits around each number whose first `bits` bits are the integer v."""
        return [_ball(value, value + 1, bits) for value in self.leading(bits)]

    def leading(self, bits: int) -> list[int]:
        """Return the first `bits` bits of each number."""
        missing = bits - self.known
        if missing:
            self._leading = [value << missing | self._entropy.bits(missing) for value in self._leading]
            self.known = bits
        return self._leading


class Products:
    """The products of groups of uniform numbers, one ball for each group."""

    def __init__(self, numbers: Uniforms, groups: Sequence[range]) -> None:
        self._numbers, self._groups = numbers, groups
        self.known = numbers.known

    def balls(self, bits: int) -> list[arb]:
        """Return a ball around the product of each group."""
        leading = self._numbers.leading(bits)
        return [_product([leading[place] for place in group], bits) for group in self._groups]


def _product(leading: list[int], bits: int) -> arb:
    """Return a ball around the product of numbers with these first bits; integers are multiplied first."""
    parts = (leading[begin : begin + _FACTORS] for begin in range(0, len(leading), _FACTORS))
    balls = (_ball(prod(part), prod([value + 1 for value in part]), bits * len(part)) for part in parts)
    return prod(balls, start=arb(1))


def _ball(low: int, high: int, bits: int) -> arb:
    """Return the ball from low to high, times 2^-bits."""
    return (arb(low + high) + arb(0, high - low)) * arb((1, -bits - 1))


def exactly_rounded(image: Callable[[list[arb]], Iterable[arb]], numbers: Enclosed, bits: int) -> list[int]:
    """Return round(x) for every x of the image of the numbers, at first from `bits` bits of each.

    Proof. A ball contains the image of every real number that begins with the bits drawn, so an integer
    that it determines is the right one; half-integers have probability 0, so the balls, which shrink to a
    point, come to lie between two of them. A ball that contains 0 or 1, where an image is infinite, has
    an unbounded image, which determines no integer either.
    """
    bits = max(bits, numbers.known)
    while True:
        with precision(bits + _GUARD):
            floors = [(value + _HALF).floor().unique_fmpz() for value in image(numbers.balls(bits))]
        integers = [int(floor) for floor in floors if floor is not None]
        if len(integers) == len(floors):
            return integers
        bits *= 2


def rounded_gaussian(sigma: int, count: int, entropy: Entropy) -> list[int]:
    """Return independent integers round(σZ), Z standard normal, exactly."""
    numbers = Uniforms(count + count % 2, entropy)
    return gaussian_of(numbers, sigma, _first_bits(sigma, count))[:count]


def gaussian_of(numbers: Uniforms, sigma: int, bits: int) -> list[int]:
    """Return round(σz) for the normal numbers z of these uniform ones, at first from `bits` bits of each."""

    def image(balls: list[arb]) -> Iterator[arb]:
        return (sigma * normal for normal in _normals(balls))

    return exactly_rounded(image, numbers, bits)


def rounded_spherical_laplace(scale: int, count: int, entropy: Entropy) -> list[int]:
    """Return the integers round(z_i) of a vector z with density ∝ exp(-‖z‖₂/scale), exactly.

    ‖z‖ has the law Gamma(count, scale), that of -scale·ln of a product of `count` uniform numbers; the
    direction, a normal vector over its norm, is uniform on the sphere (not in the ball: privacy.md §2).
    """
    numbers = Uniforms(2 * count + count % 2, entropy)
    return spherical_laplace_of(numbers, scale, count, range(count), _first_bits(scale, count))


def spherical_laplace_of(numbers: Uniforms, scale: int, count: int, wanted: Sequence[int], bits: int) -> list[int]:
    """Return round(z_i) for the wanted i, in ascending order, of the vector z of these uniform numbers.

    The first `count` numbers determine the norm, the others are pairs. The squares of a pair's two normal numbers
    add up to -2 ln of its first uniform number, so other pairs enter through the product of these alone.
    """
    last = [count - 1] * (count % 2)  # its partner is not a coordinate
    begins = [count + 2 * pair for pair in sorted({place // 2 for place in [*wanted, *last]})]
    singles = [range(place, place + 1) for begin in begins for place in (begin, begin + 1)]
    places = [place - count + one for place in begins for one in (0, 1)]

    def image(balls: list[arb]) -> Iterator[arb]:
        normals = dict(zip(places, _normals(balls[2:]), strict=True))
        square = sum((normals[place] * normals[place] for place in last), -2 * balls[1].log())
        stretch = -scale * balls[0].log() / square.sqrt()
        return (stretch * normals[place] for place in wanted)

    norm_and_direction = [range(count), range(count, 2 * count - len(last), 2)]
    return exactly_rounded(image, Products(numbers, [*norm_and_direction, *singles]), bits)


def _normals(balls: list[arb]) -> Iterator[arb]:
    """Yield independent standard normal numbers, two for every two uniform ones (Box & Muller 1958)."""
    for first, second in zip(balls[::2], balls[1::2], strict=True):
        radius = (-2 * first.log()).sqrt()
        sine, cosine = (2 * second).sin_cos_pi()
        yield radius * cosine
        yield radius * sine


def _first_bits(scale: int, count: int) -> int:
    """Return how many bits suffice for nearly every vector: its integers are nearly always below scale × count."""
    return scale.bit_length() + 2 * count.bit_length() + _SPARE
