"""Restores a session's advisory locks after a table was read: its owner's code may have taken or released some.

Neither a setting nor a subtransaction makes PostgreSQL undo such a lock. `pg_locks` shows neither how often a session
holds one, nor whether until its end or until that of the transaction.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dbdp.sessions.server import SpiSession

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
def preserved(session: SpiSession) -> Iterator[None]:
    """Leave the session at the end of the block with the advisory locks that it held at the beginning.

    Proof that no other session acquires one of them meanwhile. While session locks are counted or released, a lock of
    the transaction on the same key is held too; a session that holds the key is granted that lock at once. It is
    released with the subtransaction that is undone; locks of the session stay. Nothing waits: a lock that such code
    released and another session acquired is lost.
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


def _held(session: SpiSession) -> list[Lock]:
    return [
        (_SHARED[row["mode"]], _arguments(row["form"], row["first"], row["second"])) for row in session.query(_HELD)
    ]


def _arguments(form: int, first: int, second: int) -> str:
    """Return a key as arguments of the lock functions: one number of 64 bits (form 1), or two of 32 (form 2)."""
    if form == 1:
        return f"{_signed(first << 32 | second, 64)}::pg_catalog.int8"
    return ", ".join(f"{_signed(each, 32)}::pg_catalog.int4" for each in (first, second))


def _signed(number: int, bits: int) -> str:
    return f"({number - (1 << bits) if number >> (bits - 1) else number})"


def _counted(session: SpiSession, locks: list[Lock]) -> list[int]:
    """Return how often the session holds each lock: count how often it can be unlocked, then lock it again."""
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


def _hold(session: SpiSession, locks: list[Lock]) -> None:
    for shared, key in locks:
        session.query(f"select pg_catalog.pg_try_advisory_xact_lock{shared}({key})")


def _lock(session: SpiSession, locks: list[Lock], counts: list[int]) -> None:
    for (shared, key), count in zip(locks, counts, strict=True):
        for _ in range(count):
            session.query(f"select pg_catalog.pg_try_advisory_lock{shared}({key})")
