"""A limit on the processor time of a block, measured with one thread of BLAS."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

MOMENTS = 20  # seconds: ten times what the longest takes


@contextmanager
def in_moments() -> Iterator[None]:
    """Limit BLAS to one thread within the block, and check that its processor time is short."""
    with threadpool_limits(1):
        begin = time.thread_time()
        yield
        assert time.thread_time() - begin < MOMENTS
