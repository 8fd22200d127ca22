"""Advisory locks of a session: those that code of a table's owner takes while a table is read do not stay.

PostgreSQL undoes such a lock neither with a setting nor with a subtransaction. `pg_locks` does not show how often a
session holds one, nor whether to its end or to that of the transaction.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dbdp.sessions.server import ServerSession

_SHARED = {"ShareLock": "_shared", "ExclusiveLock": ""}
_HELD = """
select mode, objsubid::pg_catalog.int4 as form, classid::pg_catalog.int8 as first, objid::pg_catalog.int8 as second
from pg_catalog.pg_lock_status()
where locktype = 'advisory'
and granted
and pid = pg_catalog.pg_backend_pid()
and database = (
    select d.oid
    from pg_catalog.pg_database as d
    where d.datname operator(pg_catalog.=) pg_catalog.current_database()
)
"""
Lock = tuple[str, str]  # what its functions' names end in, and their arguments


@contextmanager
def kept(session: ServerSession) -> Iterator[None]:
    """Leave the session at the end of the block with those of its own advisory locks that it had at the beginning.

    Proof that nobody else gets one of them meanwhile. While session locks are counted or given up, a lock of the
    transaction on the same key is held too, which a session that holds the key is granted at once. It goes with the
    subtransaction that is undone; what is locked for the session stays. Nothing waits: a lock that such code gave up
    and another session took is lost.
    """
    before = _held(session)
    counts = _counted(session, before) if before else []
    try:
        yield
    finally:
        if before or _held(session):
            with session.undone():
                _hold(session, before)
                session.query("select pg_catalog.pg_advisory_unlock_all()")
                _lock(session, before, counts)


def _held(session: ServerSession) -> list[Lock]:
    return [
        (_SHARED[row["mode"]], _arguments(row["form"], row["first"], row["second"])) for row in session.query(_HELD)
    ]


def _arguments(form: int, first: int, second: int) -> str:
    """Return a key as its functions take it: one number of 64 bits (form 1), or two of 32 (form 2)."""
    if form == 1:
        return f"{_signed(first << 32 | second, 64)}::pg_catalog.int8"
    return ", ".join(f"{_signed(each, 32)}::pg_catalog.int4" for each in (first, second))


def _signed(number: int, bits: int) -> str:
    return f"({number - (1 << bits) if number >> (bits - 1) else number})"


def _counted(session: ServerSession, locks: list[Lock]) -> list[int]:
    """Return how often each lock is held for the session: what can be unlocked, and is locked again."""
    counts = []
    with session.undone():
        _hold(session, locks)
        for shared, key in locks:
            count = 0
            while session.query(f"select pg_catalog.pg_advisory_unlock{shared}({key}) as was")[0]["was"]:
                count += 1
            counts.append(count)
        _lock(session, locks, counts)
    return counts


def _hold(session: ServerSession, locks: list[Lock]) -> None:
    for shared, key in locks:
        session.query(f"select pg_catalog.pg_try_advisory_xact_lock{shared}({key})")


def _lock(session: ServerSession, locks: list[Lock], counts: list[int]) -> None:
    for (shared, key), count in zip(locks, counts, strict=True):
        for _ in range(count):
            session.query(f"select pg_catalog.pg_try_advisory_lock{shared}({key})")
