"""Removes what following a table has created: the subscription, and the slots and the publication of the source."""

import time
from contextlib import suppress
from typing import LiteralString

import psycopg
from psycopg import sql

from dbdp.deployment.following.hosted_table import FollowError
from dbdp.deployment.following.subscriber_checks import system_of

PATIENCE = 60  # seconds for a worker to start, or a slot to be released
_SLOTS: LiteralString = (
    "select slot_name::text, active_pid from pg_replication_slots where slot_name = %s or slot_name ~ %s"
)


def unsubscribe(target: psycopg.Connection, name: str) -> None:
    """Drop a subscription without the source, which may be gone."""
    subscription = sql.Identifier(name)
    with suppress(psycopg.errors.UndefinedObject), target.transaction():
        target.execute(sql.SQL("alter subscription {} disable").format(subscription))
        target.execute(sql.SQL("alter subscription {} set (slot_name = none)").format(subscription))
        target.execute(sql.SQL("drop subscription {}").format(subscription))


def slots_of_copy(target: psycopg.Connection, oid: int | None) -> str:
    """Return a pattern of the slots that first copies of a table use, as PostgreSQL names them."""
    return f"^pg_[0-9]+_sync_{oid}_{system_of(target)}$"


def clear_source(source: psycopg.Connection, name: str, slots_of_copy: str) -> None:
    """Drop slots and publication of the source, and end the sessions that still use them."""
    deadline = time.monotonic() + PATIENCE
    while slots := source.execute(_SLOTS, [name, slots_of_copy]).fetchall():
        for slot, process in slots:
            _drop_slot(source, slot, process)
        if time.monotonic() > deadline:
            raise FollowError(
                f"slot {name} of the source is still in use; end its session (pg_replication_slots has its process), "
                "and run the command again"
            )
        time.sleep(0.05)
    source.execute(sql.SQL("drop publication if exists {}").format(sql.Identifier(name)))


def _drop_slot(source: psycopg.Connection, slot: str, process: int | None) -> None:
    """Drop a slot that no session uses, or end its session, which may wait for a lock and not see that we are gone."""
    with suppress(psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject, psycopg.errors.InsufficientPrivilege):
        if process is None:
            source.execute("select pg_drop_replication_slot(%s)", [slot])
        else:
            source.execute("select pg_terminate_backend(%s)", [process])
