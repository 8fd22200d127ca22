"""What a role can count of its own session after a call, in the same transaction, beside statistics of relations."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
