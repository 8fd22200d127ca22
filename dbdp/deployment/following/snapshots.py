"""Copies a table by COPY in one transaction, for a hosted server without logical replication.

Readers see the former rows until it commits. The copy belongs to the role that runs it, so that none of its triggers,
checks and indexes is another role's code.
"""

from collections.abc import Callable

import psycopg
from psycopg import sql

from dbdp.deployment.following.hosted_table import FollowError, HostedTable, refused_columns
from dbdp.deployment.following.source_checks import SourceFacts, refusals_of_rows
from dbdp.deployment.following.subscriber_checks import (
    CopyPlace,
    SubscriberFacts,
    refusal_of_unmarked,
    refusals_of_place,
)
from dbdp.deployment.following.subscription import create_copy

EACH = 4096  # rows, after which progress is shown


def take_snapshot(
    source: psycopg.Connection, target: psycopg.Connection, table: HostedTable, shown: Callable[[str, int, int], None]
) -> int:
    """Replace all rows of a copy by those of its table, and create the copy if necessary; return their number.

    Raises FollowError if the table cannot be copied.
    """
    check(source, target, table)
    with target.transaction():
        if CopyPlace.of(target, table.facts.schema, table.facts.name).oid is None:
            create_copy(target, table, keyed=True)
        target.execute(sql.SQL("lock table {} in share row exclusive mode").format(table.identifier))
        check_place(CopyPlace.of(target, table.facts.schema, table.facts.name), table)
        target.execute(sql.SQL("delete from {}").format(table.identifier))
        return _copy(source, target, table, shown)


def check(source: psycopg.Connection, target: psycopg.Connection, table: HostedTable) -> None:
    """Raise FollowError, with every reason, if the table cannot be copied."""
    place, role = CopyPlace.of(target, table.facts.schema, table.facts.name), SourceFacts.of(source).role
    found = [*refused_columns(table, generated_arrive=True), *refusals_of_rows(source, role, table)]
    if place.oid is None:
        found += refusals_of_place(place, table, SubscriberFacts.of(target))
    if found:
        raise FollowError("\n".join(found))
    if place.oid is not None:
        check_place(place, table)


def check_place(place: CopyPlace, table: HostedTable) -> None:
    """Raise FollowError unless the table at the place is a copy of these columns, and belongs to the role itself."""
    if not place.is_copy:
        raise FollowError(refusal_of_unmarked(table))
    if place.subscription:
        raise FollowError(f"{table.shown} is followed already: its rows arrive; or end that first, with --stop")
    if not place.is_ones_own or place.kind != "r":
        raise FollowError(
            f"{table.shown} belongs to {place.owner}, and its triggers would run as you: connect as {place.owner}, by "
            "--url"
        )


def _copy(
    source: psycopg.Connection, target: psycopg.Connection, table: HostedTable, shown: Callable[[str, int, int], None]
) -> int:
    read = sql.SQL("copy (select {} from {}) to stdout").format(table.names, table.identifier)
    write = sql.SQL("copy {} ({}) from stdin").format(table.identifier, table.names)
    rows = 0
    with source.cursor().copy(read) as taken, target.cursor() as cursor:
        with cursor.copy(write) as given:
            for data in taken:  # one row each
                given.write(data)
                rows += 1
                if rows % EACH == 0:
                    shown("copy", rows, max(int(table.facts.rows), rows, 1))
        return cursor.rowcount
