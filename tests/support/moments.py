"""What is planned in moments: processor time of one thread, however many BLAS would have and however busy they wait."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

MOMENTS = 20  # seconds: ten times what the longest takes


@contextmanager
def in_moments() -> Iterator[None]:
    """Hold BLAS to one thread within the block, and see that its processor time is short."""
    with threadpool_limits(1):
        begin = time.thread_time()
        yield
        assert time.thread_time() - begin < MOMENTS
