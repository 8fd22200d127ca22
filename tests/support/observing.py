"""What can be seen of a session after a call: memory, and what a role can count besides statistics of relations."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

# Every lock, with relations by their names: numbers, and the names of the test's tables, differ between neighbours.
LOCKS = """
select l.locktype,
       coalesce(regexp_replace(replace(c.relname, %(table)s, 'T'), '[0-9]+', 'N', 'g'), 'gone') as relation,
       l.page, l.tuple, l.virtualxid is not null, l.transactionid is not null, l.classid, l.objsubid, l.mode, l.granted
from pg_locks as l
left join pg_class as c on c.oid = l.relation
where l.pid = %(pid)s"""
PORTAL = "do $$ declare c refcursor; begin open c for select 1; raise notice '%', c; close c; end $$"
NAMED, STARTED = re.compile(r"<unnamed portal (\d+)>"), re.compile(r"StartSubTransaction.* xid/subid/cid: \d+/(\d+)/")


def locks(session: psycopg.Connection, table: str, pid: int | None = None) -> Counter[tuple[Any, ...]]:
    """The locks that a backend holds or awaits, by default the session's own."""
    found = session.execute(LOCKS, {"table": table, "pid": pid or session.info.backend_pid}).fetchall()
    return Counter(row for row in found if row[:2] != ("relation", "pg_locks"))


def portal(session: psycopg.Connection) -> int:
    """The number of the next unnamed portal, which is taken."""
    with told(session) as messages:
        session.execute(PORTAL)
    return int(NAMED.search(" ".join(messages))[1])


def subtransaction(session: psycopg.Connection) -> int:
    """The number of the transaction's next subtransaction, which is taken: each statement of PL/Python takes one."""
    session.execute("set local client_min_messages = debug5")
    with told(session) as messages:
        session.execute("savepoint probe")
    session.execute("release savepoint probe; set local client_min_messages = notice")
    return int(STARTED.search(" ".join(messages))[1])


@contextmanager
def told(session: psycopg.Connection) -> Iterator[list[str]]:
    """Collect the server's messages within the block."""
    messages: list[str] = []

    def receive(notice: psycopg.errors.Diagnostic) -> None:
        messages.append(notice.message_primary or "")

    session.add_notice_handler(receive)
    try:
        yield messages
    finally:
        session.remove_notice_handler(receive)


def counted_in_session(session: psycopg.Connection, table: str, call: Callable[[], Any]) -> dict[str, Any]:
    """What a call in the open transaction leaves: portals that it took, cursors, and locks; and its subtransactions."""
    first = portal(session)
    call()
    return {
        "portals": portal(session) - first,
        "cursors": session.execute("select count(*) from pg_cursors").fetchone()[0],
        "locks": locks(session, table),
        "subtransactions": subtransaction(session),
    }


def alike(look: Callable[[str], Any], attempts: int = 40) -> tuple[Any, Any]:
    """What is seen of neighbours a and b, at an attempt at which it is alike, or else at the last.

    What a row decides differs at each attempt. Waiting for the disk adds subtransactions by chance, so the least ones
    of each neighbour count; and a vacuum in between changes pages of catalogues.
    """
    least: dict[str, int] = {}
    for _ in range(attempts):
        found = {each: look(each) for each in "ab"}
        for each, shown in found.items():
            if isinstance(shown, dict):
                least[each] = shown["subtransactions"] = min(shown["subtransactions"], least.get(each, 1 << 62))
        if found["a"] == found["b"]:
            break
    return found["a"], found["b"]


def most_memory(session: psycopg.Connection) -> int:
    """The most bytes that a session's process has had in memory."""
    status = Path(f"/proc/{session.info.backend_pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10
