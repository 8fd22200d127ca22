"""Masks data that Spark sends or stores, so that compressed sizes reveal nothing.

Spark compresses what it shuffles, collects and sends to its workers, and then shows, logs and counts the bytes: rows of
zeros would be fewer. What is masked does not compress, whatever it contains. A mask is not encryption: its generator is
fast and not made for that, and workers have its seed.
"""

import hashlib
import os
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dbdp.learning.rows.blocks import BLOCK_BYTES

_SEED_BYTES = 32
_STEP = 1 << 17  # bytes of a block that are masked at a time: arrays of 1 MiB cost more than the arithmetic


def masked(content: Any, seed: bytes) -> bytes:
    """Return bytes, or a buffer, with a mask added, or without it if it was added; of content and seed alone."""
    return (np.frombuffer(content, np.uint8) ^ _stream(len(content), seed)).tobytes()


class Named(NamedTuple):
    """What a pad is for: the column, the part, and the block's number in it."""

    column: str
    part: int
    number: int


def padded(content: Any, seed: bytes, named: Named) -> np.ndarray:
    """Return as `masked` the bytes of a block, by a mask for this block, which costs a pass little.

    Equal blocks have different bytes, so no compression finds them again, however far it looks back. A mask is one pad
    for all, of which every word is multiplied by an odd number of the block and mixed: a tenth of a stream's time.
    """
    given, pad = np.frombuffer(content, np.uint8), _pad(seed)
    made = np.empty_like(given)
    for first in range(0, len(given), _STEP):
        piece, begin = divmod(first, BLOCK_BYTES)  # a row that is larger than a block has several pieces
        words = pad[begin // 8 : (begin + _STEP) // 8] * _odd(seed, f"{named} {piece}")
        words ^= words >> np.uint64(32)  # the low bits of a product are those of the factors' low bits
        here = given[first : first + _STEP]
        np.bitwise_xor(here, words.view(np.uint8)[: len(here)], out=made[first : first + _STEP])
    return made


@lru_cache(maxsize=2)
def _odd(seed: bytes, label: str) -> np.ndarray:
    return np.frombuffer(hashlib.shake_256(seed + label.encode()).digest(8), "<u8") | np.uint64(1)


@lru_cache(maxsize=2)
def _pad(seed: bytes) -> np.ndarray:
    return _stream(BLOCK_BYTES, seed + b"pad").view("<u8")


def _stream(size: int, seed: bytes) -> np.ndarray:
    """Return so many bytes of a seed."""
    words = np.frombuffer(hashlib.shake_256(seed).digest(_SEED_BYTES), "<u8")
    return np.asarray(np.random.SFC64(words.tolist()).random_raw(-(-size // 8)), "<u8").view(np.uint8)[:size]


class Sealed:
    """A function with its data for the workers, pickled and masked; its own pickle has a size that shows nothing."""

    def __init__(self, function: Any) -> None:
        from pyspark import cloudpickle

        pickling: Any = cloudpickle  # without types of its own
        self.seed = os.urandom(_SEED_BYTES)
        self._masked = masked(pickling.dumps(function), self.seed)

    def opened(self) -> Any:
        """Return the function."""
        from pyspark.cloudpickle import loads

        return loads(masked(self._masked, self.seed))
