"""Answers at a public time: the owner of a dataset may have what takes as long as its rows make it wait.

It holds for what the server does in one statement. Who drives a training from a client may read the table.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dbdp.sessions import Session, is_cancel

LONGEST = 86_400  # seconds, a day
_NAP = 0.02  # seconds; a cancel is noticed between two of them


@contextmanager
def leaving_at_multiples(session: Session, seconds: int | None) -> Iterator[None]:
    """Leave the block, also by an error, a whole multiple of `seconds` after it was entered; None: at once.

    A cancel ends the block, and the wait, at once: when it comes is up to whoever sends it. Nothing of the wait
    shows in pg_stat_activity, as PostgreSQL's own pg_sleep would.
    """
    if seconds is None or not session.in_server:
        yield
        return
    entered = time.monotonic()
    try:
        yield
    except Exception as error:
        if not is_cancel(session, error):
            _wait(session, entered, seconds)
        raise
    _wait(session, entered, seconds)


def _wait(session: Session, entered: float, seconds: int) -> None:
    """Wait for the next multiple; raise what the server raises for a cancel."""
    end = entered + seconds * math.ceil((time.monotonic() - entered) / seconds)
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _NAP))
        session.query("select")
