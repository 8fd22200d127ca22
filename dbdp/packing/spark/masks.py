"""Masks: what Spark sends and stores of rows and of exact results looks random, so that its size tells nothing.

Spark compresses what it shuffles, collects and sends to its workers, and then shows, logs and counts the bytes: rows of
zeros would be fewer. What is masked does not compress, whatever it contains. A mask is not encryption: its generator is
fast and not made for that, and workers have its seed.
"""

import hashlib
import os
from typing import Any

import numpy as np

_SEED_BYTES = 32


def masked(content: Any, seed: bytes) -> bytes:
    """Return bytes, or a buffer, with a mask added, or without it if it was added; of content and seed alone."""
    words = np.frombuffer(hashlib.shake_256(seed).digest(_SEED_BYTES), "<u8")
    stream = np.random.SFC64(words.tolist()).random_raw(-(-len(content) // 8))
    mask = np.asarray(stream, "<u8").view(np.uint8)[: len(content)]
    return (np.frombuffer(content, np.uint8) ^ mask).tobytes()


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
