"""Exactly rounded noise, fast: words of a stream cipher, floating point of bounded error, balls in case of doubt.

privacy.md §2(ii), for the noise of §5 and of every step of §14.8.
Shapes: uniforms (…, 8) uint64, each the first 64 bits of a real number in [0, 1]; noise (updates, dimension) int64.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dbdp.privacy.noise import _stream as compiled
from dbdp.privacy.noise.samplers import Entropy

_WORD = 64
_LANES = 8  # numbers computed at a time
_CHUNK = 2**14  # words drawn at a time: they stay in the processor's cache
_SPAN = 2**62  # noise exceeds this in absolute value with probability at most 2^-1000


def draw(law: str, steps: int, updates: int, dimension: int) -> np.ndarray:
    """Return the noise of several updates, in steps of the grid, shape (updates, dimension): exactly rounded.

    Law "gaussian": independent round(steps·Z), Z standard normal; "spherical_laplace": each row is a rounded vector
    with density ∝ exp(-‖z‖₂/steps). `steps` is the scale of the noise divided by the grid. Raise ValueError if the law
    is unknown, or the noise might not fit in 64 bits.

    Proof that the law is that of the rounded real numbers, for uniform bits. Every number begins with a word
    of 64 bits and has as many more as are needed. The compiled code computes x̂ from the words; |x̂ - x| ≤ e
    for every x whose numbers begin with them, where e counts each rounding of correctly rounded operations,
    the series' remainders and the bits not yet drawn (`_stream.h`). An integer k is accepted if |x̂ - k| ≤ ½ - e: then
    |x - k| ≤ ½, and k = round(x) but for probability 0. Else the integer is computed in balls from the same words
    and more bits (`rounding.exactly_rounded`). Either way it is round(x). ∎ The proof assumes uniform bits: from the
    operating system's generator, and from ChaCha20 under a key of 256 bits from it, which is used for this call
    alone.
    """
    chosen = _law_named(law)
    most = chosen.most_steps(dimension)
    if not 1 <= steps <= most:
        raise ValueError(f"steps = {steps} must be from 1 to {most} for noise of 64 bits; choose a coarser grid")
    return chosen.fast(steps, updates, dimension)


def vector(law: str, steps: int, dimension: int) -> list[int]:
    """Return the noise of one update, of any scale, in steps of the grid."""
    chosen = _law_named(law)
    if steps <= chosen.most_steps(dimension):
        return draw(law, steps, 1, dimension)[0].tolist()
    return chosen.exact(steps, dimension, Entropy())


class Stream:
    """The words of ChaCha20, each used once, under a new key from the operating system."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._groups = 0

    def words(self, count: int) -> np.ndarray:
        """Return the next words, shape (count,); the rest of a group of blocks is not used."""
        groups = math.ceil(count / compiled.GROUP)
        words = np.empty(groups * compiled.GROUP, np.uint64)
        compiled.keystream(self._key, self._groups, words)
        self._groups += groups
        return words[:count]


def gaussian_of(uniforms: np.ndarray, steps: int) -> np.ndarray:
    """Return the rounded normal numbers of the uniform ones; both have the shape (groups, 2, 8).

    A group of uniform numbers is eight radii and eight angles; its results are eight cosines and eight sines.
    """
    rounded, doubts, count = compiled.gaussian(uniforms, steps)
    if count:
        _settle_gaussian(rounded, doubts, steps, uniforms.__getitem__)
    return rounded


def _settle_gaussian(
    rounded: np.ndarray, doubts: np.ndarray, steps: int, uniforms_of: Callable[[int], np.ndarray]
) -> None:
    """Compute the pairs in doubt in balls, in place; `uniforms_of` returns those of a group, shape (2, 8)."""
    from dbdp.privacy.noise.rounding import Uniforms, gaussian_of  # FLINT is loaded when needed, not before

    entropy = Entropy()
    for group, lane in np.argwhere(doubts).tolist():
        numbers = Uniforms.begun(uniforms_of(group)[:, lane].tolist(), _WORD, entropy)
        rounded[group, :, lane] = gaussian_of(numbers, steps, _WORD)


def spherical_laplace_of(uniforms: np.ndarray, steps: int, dimension: int) -> np.ndarray:
    """Return the rounded rows of the uniform numbers, shape (rows, dimension).

    In a row of uniforms, shape (vectors, 8), the first ⌈dimension/8⌉ vectors determine the norm, the others are
    groups of pairs as in `gaussian_of`; a pair's two results are next to each other in the row.
    """
    rounded, doubts, count = compiled.spherical_laplace(uniforms, dimension, steps)
    noise = _paired(rounded)[:, :dimension]
    if count:
        from dbdp.privacy.noise.rounding import Uniforms, spherical_laplace_of  # as in `gaussian_of`

        entropy = Entropy()
        for row in np.flatnonzero(doubts.any(axis=(1, 2))).tolist():
            numbers = Uniforms.begun(_in_order(uniforms[row], dimension), _WORD, entropy)
            wanted = np.flatnonzero(_paired(doubts[row])[:dimension])
            noise[row, wanted] = spherical_laplace_of(numbers, steps, dimension, wanted.tolist(), _WORD)
    return noise


def _paired(places: np.ndarray) -> np.ndarray:
    """Return rows (…, 2, n), cosines and sines, with the two of a pair next to each other: (…, 2n)."""
    return places.swapaxes(-1, -2).reshape(*places.shape[:-2], -1)


def _in_order(vectors: np.ndarray, dimension: int) -> list[int]:
    """Return a row's words in the order of `rounding`: those of the norm, then radius and angle of each pair."""
    norm, pairs = np.split(vectors, [math.ceil(dimension / _LANES)])
    return [*norm.ravel()[:dimension].tolist(), *_paired(pairs.reshape(-1, 2, _LANES)).ravel().tolist()]


def _draw_gaussian(steps: int, updates: int, dimension: int) -> np.ndarray:
    key, count = os.urandom(32), updates * dimension
    rounded, doubts, doubtful = compiled.noise(key, count, steps)

    def uniforms_of(group: int) -> np.ndarray:
        within = compiled.GROUP // (2 * _LANES)
        words = np.empty((within, 2, _LANES), np.uint64)
        compiled.keystream(key, group // within, words.reshape(-1))
        return words[group % within]

    if doubtful:
        _settle_gaussian(rounded, doubts, steps, uniforms_of)
    return rounded.reshape(-1)[:count].reshape(updates, dimension)


def _draw_spherical_laplace(steps: int, updates: int, dimension: int) -> np.ndarray:
    stream, noise = Stream(), np.empty((updates, dimension), np.int64)
    vectors = math.ceil(dimension / _LANES) + 2 * math.ceil(dimension / (2 * _LANES))
    rows = max(1, _CHUNK // (vectors * _LANES))
    for begin in range(0, updates, rows):
        piece = noise[begin : begin + rows]
        words = stream.words(len(piece) * vectors * _LANES).reshape(len(piece), vectors, _LANES)
        piece[:] = spherical_laplace_of(words, steps, dimension)
    return noise


def _exact_gaussian(steps: int, dimension: int, entropy: Entropy) -> list[int]:
    from dbdp.privacy.noise.rounding import rounded_gaussian

    return rounded_gaussian(steps, dimension, entropy)


def _exact_spherical_laplace(steps: int, dimension: int, entropy: Entropy) -> list[int]:
    from dbdp.privacy.noise.rounding import rounded_spherical_laplace

    return rounded_spherical_laplace(steps, dimension, entropy)


@dataclass(frozen=True)
class Law:
    """The functions that draw the noise of one law."""

    fast: Callable[[int, int, int], np.ndarray]  # steps, updates, dimension → noise, by the compiled code
    exact: Callable[[int, int, Entropy], list[int]]  # steps, dimension → noise of one update, by balls alone
    most_steps: Callable[[int], int]  # dimension → the most steps with which noise fits in 64 bits


LAWS = {
    "gaussian": Law(_draw_gaussian, _exact_gaussian, lambda _: _SPAN // 64),  # |z| > 64
    "spherical_laplace": Law(
        _draw_spherical_laplace,
        _exact_spherical_laplace,
        lambda dimension: _SPAN // (2 * dimension + 2000),  # a norm above that
    ),
}


def _law_named(name: str) -> Law:
    if name not in LAWS:
        raise ValueError(f"law {name!r} of noise is unknown; choose one of {', '.join(LAWS)}")
    return LAWS[name]
