"""Uniform secret permutations, and Poisson samples: which rows take part in which step.

They are drawn from the operating system's entropy or from a secret key. There is no seed: nobody can repeat,
choose or predict an order (privacy.md §3, §11.5) or a sample (§10). With a key, which is drawn for one
release and never revealed, several sessions compute the same order.
"""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

_SPAN = 1 << 10  # slots whose words come from one call of SHAKE-256
_COUNTED = 1 << 14  # slots whose words are counted at a time
_BIN_WORDS = 64  # of a bin, on average
_MOST_BINS = 1 << 16  # 512 kB of counts
_MOST_GAPS = 1 << 16  # drawn at a time
_MOST_CELLS = 1 << 46  # cells at a time, so that the sum of their gaps is below 2⁶³
_LN_2 = float.fromhex("0x1.62e42fefa39efp-1")
_TERMS = 11  # of the series of a logarithm
_GUARD = 64  # bits of precision beyond those of a uniform number


def permutation(count: int) -> np.ndarray:
    """Return a uniform permutation of 0, …, count - 1, shape (count,).

    It is the order of random 64-bit keys; if two keys are equal all are drawn again, so that
    every order is equally likely.
    """
    while True:
        keys = np.frombuffer(os.urandom(8 * count), np.uint64)
        order = np.argsort(keys)
        ranked = keys[order]
        if not (ranked[1:] == ranked[:-1]).any():
            return order


class Places:
    """The free places of a uniform permutation, counted by ranges of similar sizes."""

    def __init__(self, count: int, ranges: int) -> None:
        self.left = np.full(ranges, count // ranges)  # free places in each range
        self.left[: count % ranges] += 1

    def take(self, count: int) -> np.ndarray:
        """Assign free places to the next rows; return the range of each, shape (count,).

        Every row has a uniform free place; only the range of the place is determined.
        """
        borders = np.cumsum(self.left)
        ranges = np.searchsorted(borders, distinct(count, int(borders[-1])), side="right")
        self.left -= np.bincount(ranges, minlength=len(self.left))
        return ranges


def distinct(count: int, below: int) -> np.ndarray:
    """Return the first `count` numbers of a uniform permutation of 0, …, below - 1, shape (count,).

    Proof. A uniform number that is rejected if it was seen before is uniform among those not seen. Where most
    would be rejected, all of the permutation is drawn.

    Raise ValueError if `count` is above `below`.
    """
    if count > below:
        raise ValueError(f"count = {count} must be at most {below}, which is how many numbers there are; draw fewer")
    if 2 * count > below:
        return permutation(below)[:count]
    numbers = np.zeros(0, np.int64)
    while len(numbers) < count:
        numbers = np.concatenate([numbers, _below(below, count - len(numbers))])
        numbers = numbers[np.sort(np.unique(numbers, return_index=True)[1])]
    return numbers


def _below(limit: int, count: int) -> np.ndarray:
    """Return at most `count` independent uniform numbers in 0, …, limit - 1: of random bits those below the limit."""
    bits = np.uint64(64 - (limit - 1).bit_length()) if limit > 1 else np.uint64(63)
    words = np.frombuffer(os.urandom(8 * count), "<u8") >> bits
    return words[words < limit].astype(np.int64)


@dataclass(frozen=True)
class KeyedOrder:
    """The permutation of `count` slots that a secret key determines: the same in every session.

    Each slot has a 64-bit word of SHAKE-256 under the key, and slots are sorted by their
    words. The words of each bin, those with the same leading bits, are counted without the rows, so that a part
    of the order is computed in little memory.
    """

    key: bytes
    count: int

    def words(self, first: int, last: int) -> np.ndarray:
        """Return the words of the slots first, …, last - 1, shape (last - first,)."""
        begin = first - first % _SPAN
        spans = (
            hashlib.shake_256(self.key + span.to_bytes(8, "little")).digest(8 * _SPAN)
            for span in range(begin // _SPAN, -(-last // _SPAN))
        )
        return np.frombuffer(b"".join(spans), "<u8")[first - begin : last - begin]

    def words_of(self, slots: np.ndarray) -> np.ndarray:
        """Return the words of slots (n,) in any order, shape (n,)."""
        spans, place = np.unique(slots // _SPAN, return_inverse=True)
        words = [self.words(span, span + _SPAN) for span in (spans * _SPAN).tolist()]
        return np.array(words, "<u8").reshape(-1, _SPAN)[place, slots % _SPAN]

    def words_at(self, places: Sequence[int]) -> np.ndarray | None:
        """Return the words at some places above 0, shape (places,), in little memory, from two passes.

        None if a word at one of them equals that before it, so that the words before a place are not exactly those
        below its word: draw another key. What is equal does not depend on which slot has which word, so every order
        stays equally likely.
        """
        if not len(places):
            return np.zeros(0, "<u8")
        starts, last = self.starts(), np.asarray(places) - 1
        bins = np.unique(np.searchsorted(starts, [*last, *places], side="right") - 1)
        chosen, pieces = np.isin(np.arange(len(starts)), bins), list[np.ndarray]()
        for first in range(0, self.count, _COUNTED):
            words = self.words(first, min(first + _COUNTED, self.count))
            pieces.append(words[chosen[self.bins(words)]])
        words = np.sort(np.concatenate(pieces))
        begins = starts[:-1][bins] - np.searchsorted(self.bins(words), bins)  # places that are not among the words
        at, before = (each - begins[np.searchsorted(starts[bins], each, side="right") - 1] for each in (places, last))
        return None if (words[at] == words[before]).any() else words[at]

    @property
    def _bin_bits(self) -> int:
        return min(self.count // _BIN_WORDS, _MOST_BINS - 1).bit_length()

    def bins(self, words: np.ndarray) -> np.ndarray:
        """Return the bin of each word, shape (n,)."""
        bits = self._bin_bits
        return (words >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(words), np.int64)

    def starts(self) -> np.ndarray:
        """Return the first place of each bin, then `count`, shape (bins + 1,)."""
        counts = np.zeros(1 << self._bin_bits, np.int64)
        for first in range(0, self.count, _COUNTED):
            words = self.words(first, min(first + _COUNTED, self.count))
            counts += np.bincount(self.bins(words), minlength=len(counts))
        return np.concatenate([[0], np.cumsum(counts)])

    def within(self, bin_index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of a bin, ascending, and their words, each shape (n,)."""
        slots, words = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
        for first in range(0, self.count, _COUNTED):
            piece = self.words(first, min(first + _COUNTED, self.count))
            here = np.flatnonzero(self.bins(piece) == bin_index)
            slots.append(first + here)
            words.append(piece[here])
        return np.concatenate(slots), np.concatenate(words)

    def order(self, words: np.ndarray) -> np.ndarray:
        """Return the order of words, which must be in the order of their slots, shape (n,).

        The order of equal words is that of another key, so that every order is equally likely.
        """
        order = np.argsort(words, kind="stable")
        ranked = words[order]
        for word in np.unique(ranked[1:][ranked[1:] == ranked[:-1]]):
            equal = slice(np.searchsorted(ranked, word), np.searchsorted(ranked, word, side="right"))
            key = hashlib.shake_256(self.key + b"equal" + int(word).to_bytes(8, "little")).digest(32)
            among = KeyedOrder(key, equal.stop - equal.start)
            order[equal] = order[equal][among.order(among.words(0, among.count))]
        return order


@dataclass(frozen=True)
class Section:
    """The bins of a key's order that contain the places first, …, last - 1, and some on both sides."""

    order: KeyedOrder
    first: int
    last: int
    begin: int  # index of the first bin
    starts: np.ndarray  # first place of each bin, then the end of the last one, shape (bins + 1,)

    @classmethod
    def of(cls, order: KeyedOrder, first: int, last: int) -> "Section":
        """Return the section of these places."""
        starts = order.starts()
        begin, end = int(np.searchsorted(starts, first, side="right")) - 1, int(np.searchsorted(starts, last))
        return cls(order, first, last, begin, starts[begin : end + 1])

    @property
    def rows(self) -> int:
        """Number of words in the bins."""
        return int(self.starts[-1] - self.starts[0])

    def bins(self, words: np.ndarray) -> np.ndarray:
        """Return each word's bin, counted from the first of the section, shape (n,); -1 for any other bin."""
        bins = self.order.bins(words) - self.begin
        return np.where(bins < len(self.starts) - 1, np.maximum(bins, -1), -1)

    def places(self, words: np.ndarray, start: int) -> np.ndarray:
        """Return which words are at the places first, …, last - 1, in order; those of `words` begin at `start`."""
        return self.order.order(words)[max(self.first - start, 0) : max(self.last - start, 0)]


def section_rows(count: int, wanted: int) -> int:
    """Return how many rows of `count` a section of so many places has at most: its two outer bins may have others.

    How many these have depends on the key only. They have more than this with a probability below 1e-50.
    """
    mean = count >> KeyedOrder(b"", count)._bin_bits
    return min(count, wanted + 2 * (mean + 16 * math.isqrt(mean) + 256))


@dataclass(frozen=True)
class Subset:
    """A uniformly random subset of `most` of a number of slots, by a secret key; all of them if there are no more.

    It is those that the key's order puts first: of n + 1 slots it is one of n, or has the new slot in place of one of
    them, which is all that privacy.md §18 needs.
    """

    order: KeyedOrder
    last: int  # index of the bin in which the subset ends; every earlier bin is in it
    slots: np.ndarray  # the slots of that bin that are in the subset, ascending, shape (k,)

    @classmethod
    def of(cls, key: bytes, count: int, most: int) -> "Subset":
        """Return the subset of `count` slots; in little memory, whatever their number."""
        order = KeyedOrder(key, count)
        if count <= most:
            return cls(order, _MOST_BINS, np.zeros(0, np.int64))
        starts = order.starts()
        last = int(np.searchsorted(starts, most, side="right")) - 1
        slots, words = order.within(last)
        return cls(order, last, np.sort(slots[order.order(words)[: most - starts[last]]]))

    def contains(self, first: int, last: int) -> np.ndarray:
        """Return which of the slots first, …, last - 1 are in the subset, shape (last - first,)."""
        if self.last == _MOST_BINS:
            return np.ones(last - first, bool)
        here = self.order.bins(self.order.words(first, last)) < self.last
        begin, end = np.searchsorted(self.slots, [first, last])
        here[self.slots[begin:end] - first] = True
        return here


def participation(rows: int, steps: int, probability: float) -> tuple[np.ndarray, np.ndarray]:
    """Return row and step of every hit of one draw, ascending by row and then by step, each shape (hits,)."""
    none = np.zeros(0, np.int64)
    pieces = [(none, none), *hits(rows, steps, probability)]
    return np.concatenate([row for row, _ in pieces]), np.concatenate([step for _, step in pieces])


def hits(rows: int, steps: int, probability: float, most: int = _MOST_GAPS) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield row and step of every hit, ascending by row and then by step, at most `most` at a time.

    Every row takes part in every step with exactly this probability q, independently of all else: each step
    has a Poisson sample of the rows (privacy.md §10).

    Proof. The cells (row, step) stand in one line, row by row. The numbers of cells missed before each
    hit are independent, with P(gap ≥ k) = (1 - q)^k for k = 0, 1, …: the law of the runs of misses among
    independent events of probability q, which determines the law of these events. They have no memory, so
    a line may end at any cell, whatever was drawn beyond it, and another one begin.

    Raise ValueError if the probability or the number of steps is out of range.
    """
    if not 0 < probability <= 1:
        raise ValueError(f"probability = {probability!r} must be above 0 and at most 1")
    if not 1 <= steps <= _MOST_CELLS:
        raise ValueError(f"steps = {steps!r} must be from 1 to {_MOST_CELLS}; draw fewer at a time")
    together = _MOST_CELLS // steps
    for first in range(0, rows, together):
        for cells in _cells(min(together, rows - first) * steps, probability, min(most, _MOST_GAPS)):
            if len(cells):
                row, step = np.divmod(cells, steps)
                yield first + row, step


def _cells(count: int, probability: float, most: int) -> Iterator[np.ndarray]:
    """Yield those of the cells 0, …, count - 1 that are hit, in ascending order."""
    passed = 0
    while passed < count:
        likely = (count - passed) * probability
        drawn = int(min(most, likely + 4 * likely**0.5 + 4))  # mostly enough for all that are left
        cells = passed - 1 + np.cumsum(_gaps(drawn, probability) + 1)
        yield cells[cells < count]
        passed = int(cells[-1]) + 1


def _gaps(count: int, probability: float) -> np.ndarray:
    """Return independent ⌊ln U / ln(1 - q)⌋, or _MOST_CELLS if that is less, shape (count,).

    U are uniform real numbers, so P(gap ≥ k) = P(ln U ≤ k·ln(1 - q)) = (1 - q)^k exactly. 64 bits of each
    are drawn; where the ratios of the numbers that begin so lie on both sides of an integer, more are drawn.

    Proof. Let u = 2⁻⁵³ and v the first 52 bits. U·2⁵² is within ½ of v + ½, so ln U within 1/(2v) of
    y = ln((v + ½)·2⁻⁵²), which is computed to within 4u(1 + |y|). The slope is off by u, the quotient by
    u of itself, the two borders by u of theirs. All in all the ratio is within
    (1/(2v) + 4u + 8.3u|y|)(1 + 4u)/|slope| of the one computed; `errors` has 16u(1 + |y|) in place of
    4u + 8.3u|y|, and its own rounding takes less than the difference.
    """
    if probability == 1:
        return np.zeros(count, np.int64)
    words = np.frombuffer(os.urandom(8 * count), "<u8")
    leading, slope = (words >> np.uint64(12)).astype(np.float64), _log_of_miss(probability)
    with np.errstate(all="ignore"):  # v = 0 and the least probabilities have an infinite error: drawn further
        logs = _logs(leading)
        ratios, errors = logs / slope, (0.5 / leading + 2.0**-49 * (1 - logs)) / -slope
        low, high = (np.floor(border).clip(0, _MOST_CELLS) for border in (ratios - errors, ratios + errors))
    decided = low == high
    gaps = np.where(decided, low, 0).astype(np.int64)
    for place in np.flatnonzero(~decided):
        gaps[place] = _exact_gap(int(words[place]), probability)
    return gaps


def _logs(leading: np.ndarray) -> np.ndarray:
    """Return y = ln((v + ½)·2⁻⁵²) of whole numbers v below 2⁵², to within 4u(1 + |y|), u = 2⁻⁵³.

    It uses only sums, products and quotients, each within u of itself, and no library's logarithm.

    Proof. v + ½ = m·2^e exactly, with m from √½ to √2. y = (e - 52)·ln 2 + 2·artanh s, s = (m - 1)/(m + 1),
    |s| < 0.1716. m - 1 is exact, so s is within 2.1u of itself and s² within 5.3u. The series
    Σ s^(2j)/(2j + 1) is 1 plus at most 0.0101, which is within 9u of itself: together within 1.2u; the
    terms left out are below 10⁻¹⁸. So 2·artanh s ≤ 0.347 is within 4.4u of itself, the other summand
    within 2.1u·(|y| + 0.347), the sum within u|y|: altogether within 2.4u + 3.1u|y|.
    """
    fractions, exponents = np.frexp(leading + 0.5)
    small = fractions < 0.5**0.5
    fractions, exponents = np.where(small, 2 * fractions, fractions), exponents - small
    tangents = (fractions - 1) / (fractions + 1)
    squares, series = tangents * tangents, np.zeros_like(tangents)
    for odd in range(2 * _TERMS - 1, 0, -2):
        series = series * squares + 1 / odd
    return (exponents - 52) * _LN_2 + 2 * (tangents * series)


@lru_cache(maxsize=16)
def _log_of_miss(probability: float) -> float:
    """Return ln(1 - q), to within 2⁻⁵³ of itself."""
    from flint import arb

    from dbdp.privacy.noise.balls import precision

    with precision(2 * _GUARD):
        return float((-arb(probability)).log1p())


def _exact_gap(word: int, probability: float) -> int:
    """Return the gap of the uniform real number that begins with these 64 bits; draw more until it is certain.

    Proof. Balls (FLINT's arb) contain the ratio of every number that begins with the bits drawn, so an integer
    that they determine is right; they shrink to a point, which is an integer with probability 0.
    """
    from flint import arb

    from dbdp.privacy.noise.balls import precision

    bits = 64
    while True:
        with precision(bits + _GUARD):
            uniform = (arb(2 * word + 1) + arb(0, 1)) * arb((1, -bits - 1))
            ratio = uniform.log() / (-arb(probability)).log1p()
            floor = ratio.floor().unique_fmpz()
            if floor is not None or ratio > _MOST_CELLS:
                return _MOST_CELLS if floor is None else min(int(floor), _MOST_CELLS)
        word, bits = word << 64 | int.from_bytes(os.urandom(8), "little"), bits + 64
