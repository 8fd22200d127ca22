"""How the server waits: until a public time at which an answer leaves, and until standbys have a charge."""

import math
import re
import time
from collections.abc import Callable

from dbdp.sessions.session import Session, wait_until

_REPLICATED = """
select count(*) >= $2 as done
from pg_stat_get_wal_senders() -- what pg_stat_replication adds is frozen within a transaction
where sync_state in ('sync', 'quorum')
and flush_lsn >= $1::pg_lsn
"""
_NAP = 0.02  # seconds of one sleep; a cancel is noticed between two sleeps


def await_multiple(pause: Callable[[], None], entered: float, seconds: int | None) -> None:
    """Wait for the next multiple of `seconds` after a time; `pause` raises the server's error after a cancel."""
    if seconds is None:
        return
    end = entered + seconds * math.ceil((time.monotonic() - entered) / seconds)
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _NAP))
        pause()


def await_standbys(session: Session, position: str) -> None:
    """Wait until the synchronous standbys have the WAL up to a position."""
    if standbys := synchronous_standbys(session):
        wait_until(session, _REPLICATED, position, standbys)


def synchronous_standbys(session: Session) -> int:
    """Return how many standbys synchronous_standby_names requires, 0 if it is empty (as dbdp_owner)."""
    row = session.query(
        "select current_setting('synchronous_standby_names') as names, "
        "pg_has_role(current_user, 'pg_read_all_stats', 'usage') as may"
    )[0]
    if not row["names"].strip():
        return 0
    if not row["may"]:
        raise ValueError(
            "synchronous_standby_names is set, but dbdp_owner may not see how far the standbys have replicated, so "
            "that a failover could undo a charge; grant pg_read_all_stats to dbdp_owner"
        )
    counted = re.match(r"\s*(?:(?:first|any)\s+)?(\d+)\s*\(", row["names"], re.IGNORECASE)
    return int(counted[1]) if counted else 1
