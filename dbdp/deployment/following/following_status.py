"""How far a copy is behind its table, and how much WAL the hosted server keeps for it."""

from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

FOLLOWING, COPYING, STOPPED, LOST = "following", "copying", "stopped", "lost"
_SUBSCRIBED: LiteralString = """
select s.subenabled as is_enabled,
       f.srsubstate in ('s', 'r') as is_copied,
       w.pid is not null as works,
       round(extract(epoch from now() - w.latest_end_time))::int8 as seconds_since_contact,
       coalesce(e.apply_error_count, 0)::int8 as apply_errors,
       coalesce(e.sync_error_count, 0)::int8 as copy_errors
from pg_subscription as s
join pg_subscription_rel as f on f.srsubid = s.oid
left join pg_stat_subscription as w on w.subid = s.oid and w.relid is null
left join pg_stat_subscription_stats as e on e.subid = s.oid
where s.subname = %s
"""
_RETAINED: LiteralString = """
select active, wal_status, safe_wal_size::int8 as safe_wal_size,
       (pg_current_wal_lsn() - confirmed_flush_lsn)::int8 as lag_bytes,
       (pg_current_wal_lsn() - restart_lsn)::int8 as retained_bytes
from pg_replication_slots
where slot_name = %s
"""
_NOTHING: dict[str, Any] = dict.fromkeys(("active", "wal_status", "safe_wal_size", "lag_bytes", "retained_bytes"))


@dataclass(frozen=True)
class FollowingStatus:
    """The state of a followed table."""

    table: str
    state: str  # following, copying, stopped or lost
    subscription: str
    source: str  # reachable, or why it is not
    seconds_since_contact: int | None
    lag_bytes: int | None  # of WAL that the copy has not confirmed
    retained_bytes: int | None  # of WAL that the source keeps for it
    safe_wal_size: int | None  # bytes of WAL until the slot is lost; None without max_slot_wal_keep_size
    wal_status: str | None
    apply_errors: int
    copy_errors: int
    advice: str | None


def following_status(
    target: psycopg.Connection, source: psycopg.Connection | str, table: str, name: str
) -> FollowingStatus | None:
    """Return the state of a subscription, None without one; `source` is a connection, or why there is none."""
    with target.cursor(row_factory=dict_row) as cursor:
        subscribed = cursor.execute(_SUBSCRIBED, [name]).fetchone()
    if subscribed is None:
        return None
    slot = _NOTHING if isinstance(source, str) else slot_of(source, name)
    state = _state(subscribed, slot)
    return FollowingStatus(
        table=table,
        state=state,
        subscription=name,
        source=source if isinstance(source, str) else "reachable",
        seconds_since_contact=subscribed["seconds_since_contact"],
        **{each: (slot or _NOTHING)[each] for each in _NOTHING if each != "active"},
        apply_errors=subscribed["apply_errors"],
        copy_errors=subscribed["copy_errors"],
        advice=_advice(state, subscribed, slot),
    )


def slot_of(source: psycopg.Connection, name: str) -> dict[str, Any] | None:
    """Return the slot of a name on the source; None if it is not there."""
    with source.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_RETAINED, [name]).fetchone()


def is_lost(slot: dict[str, Any] | None) -> bool:
    """Return whether changes were lost, so that the copy must be made again."""
    return slot is None or slot["wal_status"] == "lost"


def _state(subscribed: dict[str, Any], slot: dict[str, Any] | None) -> str:
    if is_lost(slot):
        return LOST
    if not (subscribed["is_enabled"] and subscribed["works"]):
        return STOPPED
    return FOLLOWING if subscribed["is_copied"] else COPYING


def _advice(state: str, subscribed: dict[str, Any], slot: dict[str, Any] | None) -> str | None:
    if state == LOST:
        return "the source has removed the changes that the copy lacks: run it with --resync"
    if state == STOPPED:
        return "no worker runs: run the command without --status to go on, and see the log of dbdp's server"
    if subscribed["apply_errors"]:
        return "changes could not be applied: see the log of dbdp's server; --resync copies the rows again"
    if slot is not None and slot["wal_status"] in ("extended", "unreserved"):
        return "the source keeps much WAL for the copy: see whether dbdp's server and the network between them work"
    return None
