"""Ball arithmetic (FLINT's arb): the precision, which is one setting of the process."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from flint import ctx

_LOCK = Lock()  # the process has one precision: one thread at a time changes and restores it


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute with that many bits within the block."""
    with _LOCK, ctx.workprec(bits):
        yield
