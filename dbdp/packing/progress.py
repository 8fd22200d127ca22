"""Calls dbdp_internal.shuffle, and reports its progress from the server to a client that requests it.

The reports are public: their text and their number depend only on the registered number of rows; only their times
depend on the server. They are messages of level INFO, which no setting hides from the client.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from dbdp.algorithms.rows import Progress, silent
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Session

_MOST_PARTS, _ROWS_OF_A_PART = 100, 1000
_REPORT = re.compile(r"dbdp: (\w+) (\d+)/(\d+)")


def fill(session: Session, dataset: str, table: str, options: dict[str, Any], progress: Progress = silent) -> None:
    """Replace a table's content by the packed rows of a dataset; options are those of dbdp_internal.shuffle.

    Only a progress function with the attribute `needs_no_session` is called meanwhile: another one may use the session,
    which is busy.
    """
    session.query(f"truncate {table}")
    options = options | {"progress": getattr(progress, "needs_no_session", False)}
    with session.messages_to(_receiver(progress)):
        session.query("select dbdp_internal.shuffle($1, $2, $3::pg_catalog.json)", dataset, table, json.dumps(options))


def _receiver(progress: Progress) -> Callable[[str], None]:
    """Return a function that passes the server's reports on to a progress function."""

    def receive(message: str) -> None:
        if report := _REPORT.fullmatch(message):
            progress(report[1], int(report[2]), int(report[3]))

    return receive


class ProgressReporter:
    """Reports the progress of each stage in equal parts, each part once and in order."""

    def __init__(self, session: SpiSession, rows: int, *, enabled: bool) -> None:
        self._session = session
        self._parts = max(1, min(_MOST_PARTS, rows // _ROWS_OF_A_PART)) if enabled else 0
        self._reported: dict[str, int] = {}

    def report(self, stage: str, done: int, total: int) -> None:
        """Report the parts that are done and were not reported yet."""
        reached = min(done, total) * self._parts // total
        for part in range(self._reported.get(stage, 0), reached):
            self._session.report(f"dbdp: {stage} {part + 1}/{self._parts}")
        self._reported[stage] = reached
