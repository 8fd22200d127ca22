"""Uniform secret permutations, from the operating system's entropy or from a secret key.

There is no seed: nobody can repeat, choose or predict an order (privacy.md §3, §11.5). With a key,
which is drawn for one release and never shown, several sessions compute the same order.
"""

import hashlib
import os
from dataclasses import dataclass

import numpy as np

_SPAN = 1 << 10  # slots whose words come from one call of SHAKE-256
_COUNTED = 1 << 14  # slots whose words are counted at a time
_BIN_WORDS = 64  # of a bin, on average
_MOST_BINS = 1 << 16  # 512 kB of counts: a bin has few words, however many there are


def permutation(count: int) -> np.ndarray:
    """Return a uniform permutation of 0, …, count - 1, shape (count,).

    The order of distinct random 64-bit keys; where two keys are equal all are drawn again, so that
    every order is equally likely.
    """
    while True:
        keys = np.frombuffer(os.urandom(8 * count), np.uint64)
        order = np.argsort(keys, kind="stable")
        ranked = keys[order]
        if not (ranked[1:] == ranked[:-1]).any():
            return order


def buckets(count: int, number: int) -> np.ndarray:
    """Return `count` independent uniform buckets in 0, …, number - 1.

    Raises
    ------
    ValueError
        If the number is not a power of two up to 2³²: only those divide random bits evenly.
    """
    if number < 1 or number > 2**32 or number & (number - 1):
        raise ValueError(f"number = {number} must be a power of two up to 2**32")
    return np.frombuffer(os.urandom(4 * count), np.uint32) & np.uint32(number - 1)


@dataclass(frozen=True)
class KeyedOrder:
    """The permutation of `count` slots that a secret key decides: the same in every session.

    Each slot has a 64-bit word of SHAKE-256 under the key, and slots are placed in the order of their
    words. Words below any border are counted without the rows, so that a part of the order is found
    in little memory: a bin is the words with the same leading bits.
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

    @property
    def _bin_bits(self) -> int:
        return min(self.count // _BIN_WORDS, _MOST_BINS - 1).bit_length()

    def bins(self, words: np.ndarray) -> np.ndarray:
        """Return the bin of each word, shape (n,)."""
        bits = self._bin_bits
        return (words >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(words), np.int64)

    def starts(self) -> np.ndarray:
        """Return the place where each bin begins, and `count`, shape (bins + 1,)."""
        counts = np.zeros(1 << self._bin_bits, np.int64)
        for first in range(0, self.count, _COUNTED):
            words = self.words(first, min(first + _COUNTED, self.count))
            counts += np.bincount(self.bins(words), minlength=len(counts))
        return np.concatenate([[0], np.cumsum(counts)])

    def order(self, words: np.ndarray) -> np.ndarray:
        """Return the order of words that are given in the order of their slots, shape (n,).

        Equal words are put in an order that another key decides, so that every order is equally likely.
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
    """The bins of a key's order that hold the places first, …, last - 1, and some on both sides.

    Attributes
    ----------
    begin : the first of the bins
    starts : the place where each begins, and where the last one ends
    """

    order: KeyedOrder
    first: int
    last: int
    begin: int
    starts: np.ndarray

    @classmethod
    def of(cls, order: KeyedOrder, first: int, last: int) -> "Section":
        """Find the bins of these places."""
        starts = order.starts()
        begin, end = int(np.searchsorted(starts, first, side="right")) - 1, int(np.searchsorted(starts, last))
        return cls(order, first, last, begin, starts[begin : end + 1])

    @property
    def rows(self) -> int:
        """Number of words in the bins."""
        return int(self.starts[-1] - self.starts[0])

    def bins(self, words: np.ndarray) -> np.ndarray:
        """Return each word's bin, the first being 0; -1 for a bin that is not here."""
        bins = self.order.bins(words) - self.begin
        return np.where(bins < len(self.starts) - 1, np.maximum(bins, -1), -1)

    def places(self, words: np.ndarray, start: int) -> np.ndarray:
        """Return which of these words are at the places first, …, last - 1, in order; theirs begin at `start`."""
        return self.order.order(words)[max(self.first - start, 0) : max(self.last - start, 0)]
