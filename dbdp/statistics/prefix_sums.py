"""Prefix sums of a histogram with noise of nearly the least variance: the square root of the triangle of ones.

A is lower triangular with A_ij = a_(i-j), a_k = C(2k, k)/4ᵏ, and A·A is the triangle of ones: a_k are the coefficients
of (1 - x)^(-1/2), whose square is that of 1 + x + x² + … A noisy A·h, multiplied by A, has the prefix sums of h
(privacy.md §25.3; known as the square-root factorisation). Shapes: histograms (B,), matrices (B, B).
"""

from functools import cache

import numpy as np

from dbdp.statistics.unit_sums import STEPS

_LARGEST = 1024  # cells
_LOW = 26  # bits of a sum that are multiplied at a time: 2²⁰·2²⁶ products of up to 1,024 terms are below 2⁶³


def root(size: int) -> np.ndarray:
    """Return A in steps of 2⁻²⁰, int64: its entries are whole, so that A·h is exact."""
    return _root()[:size, :size]


def gram(size: int) -> np.ndarray:
    """Return AᵀA: exact, since sums of 1,024 products of two entries stay below 2⁵³ steps.

    A has one number along each diagonal, so that AᵀA with both axes turned round is AAᵀ.
    """
    return _turned_gram()[:size, :size][::-1, ::-1]


@cache
def _root() -> np.ndarray:
    """Return the largest A; it has the smaller ones in its corner, so that only one of them is held."""
    entries = np.empty(_LARGEST)
    entries[0] = 1.0
    for power in range(1, _LARGEST):
        entries[power] = entries[power - 1] * (2 * power - 1) / (2 * power)
    return _triangle(np.rint(entries * STEPS).astype(np.int64))


@cache
def _turned_gram() -> np.ndarray:
    matrix = _root().astype(np.float64)
    return _kept(matrix @ matrix.T / STEPS**2)


@cache
def _inverse() -> np.ndarray:
    entries, inverse = _root()[:, 0] / STEPS, np.zeros(_LARGEST)
    inverse[0] = 1.0
    for place in range(1, _LARGEST):
        inverse[place] = -entries[1 : place + 1] @ inverse[:place][::-1]
    return _triangle(np.cumsum(inverse))


def _triangle(entries: np.ndarray) -> np.ndarray:
    """Return the lower triangle with these entries along its diagonals."""
    places = np.subtract.outer(np.arange(_LARGEST), np.arange(_LARGEST))
    return _kept(np.where(places >= 0, entries[np.maximum(places, 0)], 0))


def _kept(matrix: np.ndarray) -> np.ndarray:
    matrix.flags.writeable = False
    return matrix


def distances(size: int) -> np.ndarray:
    """Return ‖A·e_b - A·e_c‖² for each two cells, shape (B, B)."""
    squares = np.diag(gram(size))
    return squares[:, None] + squares[None, :] - 2 * gram(size)


def transformed(histogram: np.ndarray) -> np.ndarray:
    """Return A·h in steps, for a histogram in steps, int64: exact, and then rounded to whole steps."""
    matrix = root(len(histogram))
    high, low = histogram >> _LOW, histogram & ((1 << _LOW) - 1)
    parts = zip((matrix @ high).tolist(), (matrix @ low).tolist(), strict=True)
    return np.array([((above << _LOW) + below + STEPS // 2) // STEPS for above, below in parts], np.int64)


def inverse(size: int) -> np.ndarray:
    """Return T·A⁻¹, T the triangle of ones: A itself, but for the rounding of its entries."""
    return _inverse()[:size, :size]


def prefixes(noisy: np.ndarray) -> np.ndarray:
    """Return the noisy prefix sums that follow from a noisy A·h, in its units."""
    return inverse(len(noisy)) @ noisy


def increasing(values: np.ndarray) -> np.ndarray:
    """Return the increasing sequence that is nearest in squares: neighbours that fall are replaced by their mean."""
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        mean, size = value, 1
        while means and means[-1] > mean:
            before, count = means.pop(), sizes.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        means.append(mean)
        sizes.append(size)
    return np.repeat(means, sizes)
