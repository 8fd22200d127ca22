"""Masks data that Spark sends or stores, so that compressed sizes reveal nothing.

Spark compresses what it shuffles, collects and sends to its workers, and then shows, logs and counts the bytes: rows of
zeros would be fewer. What is masked does not compress, whatever it contains. A mask is not encryption: its generator is
fast and not made for that, and workers have its seed.
"""

import hashlib
import os
from functools import lru_cache
from typing import Any

import numpy as np

from dbdp.learning.rows.blocks import BLOCK_BYTES

_SEED_BYTES = 32


def masked(content: Any, seed: bytes) -> bytes:
    """Return bytes, or a buffer, with a mask added, or without it if it was added; of content and seed alone."""
    return (np.frombuffer(content, np.uint8) ^ _stream(len(content), seed)).tobytes()


def padded(content: Any, seed: bytes) -> np.ndarray:
    """Return as `masked` the bytes of a block, by one mask for all blocks, which costs a pass next to nothing.

    Equal blocks stay equal, but are further apart than compressions look back, by BLOCK_BYTES.
    """
    given, pad = np.frombuffer(content, np.uint8), _pad(seed)
    return given ^ (pad[: len(given)] if len(given) <= len(pad) else np.resize(pad, len(given)))


@lru_cache(maxsize=2)
def _pad(seed: bytes) -> np.ndarray:
    return _stream(BLOCK_BYTES, seed + b"pad")


def _stream(size: int, seed: bytes) -> np.ndarray:
    """Return so many bytes of a seed."""
    words = np.frombuffer(hashlib.shake_256(seed).digest(_SEED_BYTES), "<u8")
    return np.asarray(np.random.SFC64(words.tolist()).random_raw(-(-size // 8)), "<u8").view(np.uint8)[:size]


class Sealed:
    """A function with its data for the workers, pickled and masked; its own pickle has a size that shows nothing.

    Parameters
    ----------
    function : Any
        The function.
    """

    def __init__(self, function: Any) -> None:
        from pyspark import cloudpickle

        pickling: Any = cloudpickle  # without types of its own
        self.seed = os.urandom(_SEED_BYTES)
        self._masked = masked(pickling.dumps(function), self.seed)

    def opened(self) -> Any:
        """Return the function."""
        from pyspark.cloudpickle import loads

        return loads(masked(self._masked, self.seed))
