"""Ball arithmetic (FLINT's arb): every number is enclosed, at a precision that is the process's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from flint import ctx

_LOCK = Lock()  # the precision is one for the process: threads take turns, so that each restores what it found


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute with so many bits within the block."""
    with _LOCK, ctx.workprec(bits):
        yield
