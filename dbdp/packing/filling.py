"""A call of dbdp.shuffle, and what the server tells of its way to a client that asks.

What is told is public: the words and their number depend on the registered number of rows alone; only when they
come is up to the server. They are messages of level INFO, which no setting holds back from the client.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from dbdp.algorithms.rows import Progress, silent
from dbdp.sessions.server import ServerSession
from dbdp.sessions.session import Session

_MOST_PARTS, _ROWS_OF_A_PART = 100, 1000
_TOLD = re.compile(r"dbdp: (\w+) (\d+)/(\d+)")


def fill(session: Session, dataset: str, table: str, options: dict[str, Any], progress: Progress = silent) -> None:
    """Fill a table anew with the packed rows of a dataset; options are those of dbdp.shuffle.

    Only a report that `hears` is told of the way: others may use the session, which is busy.
    """
    sql = "select dbdp.shuffle($1, $2, $3::pg_catalog.json)"
    session.query(f"truncate {table}")
    with session.hearing(_hearer(progress)):
        session.query(sql, dataset, table, json.dumps(options | {"progress": getattr(progress, "hears", False)}))


def _hearer(progress: Progress) -> Callable[[str], None]:
    def hear(message: str) -> None:
        if told := _TOLD.fullmatch(message):
            progress(told[1], int(told[2]), int(told[3]))

    return hear


class Teller:
    """Tells how many parts of each stage are done: each of them, once, in their order.

    Parameters
    ----------
    rows : int
        Registered number, which decides the number of parts.
    asked : bool
        Whether anything is told.
    """

    def __init__(self, session: ServerSession, rows: int, *, asked: bool) -> None:
        self._session = session
        self._parts = max(1, min(_MOST_PARTS, rows // _ROWS_OF_A_PART)) if asked else 0
        self._told: dict[str, int] = {}

    def tell(self, stage: str, done: int, whole: int) -> None:
        """Tell the parts that were not told and are done by now."""
        reached = min(done, whole) * self._parts // whole
        for part in range(self._told.get(stage, 0), reached):
            self._session.tell(f"dbdp: {stage} {part + 1}/{self._parts}")
        self._told[stage] = reached
