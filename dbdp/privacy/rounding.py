"""Continuous noise, exactly rounded to integers: real numbers are enclosed until their rounding is certain.

privacy.md §2(ii). A uniform real number is a row of random bits without end, of which only the first are
drawn; ball arithmetic (FLINT's arb) encloses everything that is computed from it. A ball that reaches
over a half-integer decides nothing: more bits are drawn, and computed with more precision. So the law of
the integers is that of the rounded real numbers, without a distance in total variation.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import prod

from flint import arb

from dbdp.privacy.balls import precision
from dbdp.privacy.samplers import Entropy

_GUARD = 32  # bits of precision beyond those of the numbers: the arithmetic widens a ball by less than they do
_SPARE = 32  # bits drawn at first beyond those that the integers have: fewer than one vector in 2²⁵ takes more
_WITHIN_ONE, _HALF = arb(0, 1), arb(0.5)


class Uniforms:
    """Independent uniform real numbers in [0, 1], of which the first bits are known; more are drawn when needed."""

    def __init__(self, count: int, entropy: Entropy) -> None:
        self._entropy = entropy
        self._known = 0
        self._leading = [0] * count

    def balls(self, bits: int) -> list[arb]:
        """Return the ball [v, v + 1]·2^-bits around each number whose first `bits` bits are the integer v."""
        missing = bits - self._known
        self._leading = [value << missing | self._entropy.bits(missing) for value in self._leading]
        self._known = bits
        half = arb((1, -bits - 1))  # 2^-(bits + 1)
        return [(arb(2 * value + 1) + _WITHIN_ONE) * half for value in self._leading]


def exactly_rounded(image: Callable[[list[arb]], Iterable[arb]], numbers: Uniforms, bits: int) -> list[int]:
    """Return round(x) for every x of the image of the numbers; at first their `bits` first bits are drawn.

    Proof. A ball contains the image of every real number that begins with the bits drawn, so an integer
    that is found is the right one; half-integers have probability 0, so the balls, which shrink to a
    point, come to lie between two of them. A ball that reaches 0 or 1, where an image is infinite, gives
    a ball of all numbers, which decides nothing either.
    """
    while True:
        with precision(bits + _GUARD):
            floors = [(value + _HALF).floor().unique_fmpz() for value in image(numbers.balls(bits))]
        integers = [int(floor) for floor in floors if floor is not None]
        if len(integers) == len(floors):
            return integers
        bits *= 2


def rounded_gaussian(sigma: int, count: int, entropy: Entropy) -> list[int]:
    """Return independent integers round(σZ), Z standard normal, exactly."""

    def image(balls: list[arb]) -> Iterator[arb]:
        return (sigma * normal for normal in _normals(balls))

    numbers = Uniforms(count + count % 2, entropy)
    return exactly_rounded(image, numbers, _first_bits(sigma, count))[:count]


def rounded_spherical_laplace(scale: int, count: int, entropy: Entropy) -> list[int]:
    """Return the integers round(z_i) of a vector z with density ∝ exp(-‖z‖₂/scale), exactly.

    ‖z‖ has the law Gamma(count, scale), that of -scale·ln of a product of `count` uniform numbers; the
    direction, a normal vector over its norm, is uniform on the sphere (not in the ball: privacy.md §2).
    """

    def image(balls: list[arb]) -> Iterator[arb]:
        normals = list(islice(_normals(balls[count:]), count))
        norm = sum((normal * normal for normal in normals), arb(0)).sqrt()
        stretch = -scale * prod(balls[:count], start=arb(1)).log() / norm
        return (stretch * normal for normal in normals)

    numbers = Uniforms(2 * count + count % 2, entropy)
    return exactly_rounded(image, numbers, _first_bits(scale, count))


def _normals(balls: list[arb]) -> Iterator[arb]:
    """Yield independent standard normal numbers, two for every two uniform ones (Box & Muller 1958)."""
    for first, second in zip(balls[::2], balls[1::2], strict=True):
        radius = (-2 * first.log()).sqrt()
        sine, cosine = (2 * second).sin_cos_pi()
        yield radius * cosine
        yield radius * sine


def _first_bits(scale: int, count: int) -> int:
    """Return how many bits decide nearly every vector: its integers are below scale × count, nearly always."""
    return scale.bit_length() + 2 * count.bit_length() + _SPARE
