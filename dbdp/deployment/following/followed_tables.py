"""What `dbdp follow` does: it starts, goes on, copies again, stops, shows the state, or takes a snapshot."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import LiteralString

import psycopg

from dbdp.deployment.following import snapshots, source_checks, subscriber_checks
from dbdp.deployment.following.following_status import FollowingStatus, following_status
from dbdp.deployment.following.hosted_table import FollowError, HostedTable, hosted_table, parsed_name, shown_name
from dbdp.deployment.following.removal import clear_source, slots_of_copy, unsubscribe
from dbdp.deployment.following.subscriber_checks import CopyPlace, SubscriberFacts
from dbdp.deployment.following.subscription import Following, Shown

_OWNER: LiteralString = "select pg_has_role(r.oid, 'dbdp_data_owner', 'usage') from pg_roles as r where r.rolname = %s"
_REGISTERED: LiteralString = "select name from dbdp.datasets_details where to_regclass(source::text) = to_regclass(%s)"


@dataclass(frozen=True)
class Followed:
    """What was done with a table."""

    table: str
    done: str
    columns: list[str]
    subscription: str | None = None
    rows: int | None = None
    warnings: list[str] = field(default_factory=list)
    next: str | None = None  # the statement that registers the copy; None if it is registered


@dataclass(frozen=True)
class Order:
    """What the caller wants to follow, from where, and how."""

    source_url: str
    target_url: str
    table: str
    columns: Sequence[str] | None = None
    owner: str | None = None
    passfile: str | None = None
    inserts_only: bool = False


@contextmanager
def joined(order: Order) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """Connect to both servers, which must be different ones."""
    with (
        subscriber_checks.opened_subscriber(order.target_url) as target,
        source_checks.opened_source(order.source_url) as source,
    ):
        ours = subscriber_checks.system_of(target)
        if ours is not None and subscriber_checks.system_of(source) == ours:
            raise FollowError("source and dbdp server are the same server: register the table there, without a copy")
        yield source, target


def follow(order: Order, shown: Shown) -> Followed:
    """Start to follow a table, or go on; return once the rows are copied."""
    with joined(order) as (source, target):
        table, place = _table(source, target, order)
        if place.subscription is not None:
            if order.owner is not None and place.owner != shown_name(order.owner):
                raise FollowError(
                    f"{table.shown} is followed already, and belongs to {place.owner}: leave out --owner, or, on "
                    f"PostgreSQL 17 or newer, alter table {table.shown} owner to {shown_name(order.owner)}"
                )
            joining = _joining(order, source, target, table, place)
            joining.resume(shown)
            return _followed(joining, "is followed, as before")
        check(source, target, table, order)
        joining = _joining(order, source, target, table, place)
        joining.start(order.owner, inserts_only=order.inserts_only, shown=shown)
        return _followed(joining, "is followed")


def check(source: psycopg.Connection, target: psycopg.Connection, table: HostedTable, order: Order) -> None:
    """Raise FollowError, with every reason, if a table cannot be followed; nothing is changed."""
    facts = SubscriberFacts.of(target)
    place = CopyPlace.of(target, table.facts.schema, table.facts.name)
    _refuse(
        *source_checks.refusals(source, table, facts.version, inserts_only=order.inserts_only),
        *subscriber_checks.refusals_of_subscriber(facts, order.owner),
        *subscriber_checks.refusals_of_place(place, table, facts),
        *_refusals_of_owner(target, order.owner),
        *_refusals_of_passfile(facts, order.passfile),
    )


def resync(order: Order, shown: Shown) -> Followed:
    """Empty a copy and copy the rows again; its dataset and budget stay."""
    with joined(order) as (source, target):
        table, place = _table(source, target, order)
        if not (place.is_copy and place.is_own):
            raise FollowError(f"{table.shown} is no copy of yours on the dbdp server: leave out --resync to make one")
        facts = SubscriberFacts.of(target)
        _refuse(
            *source_checks.refusals(source, table, facts.version, inserts_only=not place.is_keyed),
            *(_refusals_of_stopped(place, table, facts, order.owner) if place.subscription is None else ()),
        )
        joining = _joining(order, source, target, table, place)
        joining.resync(inserts_only=not place.is_keyed, shown=shown)
        return _followed(joining, "is copied again, and followed")


def _refusals_of_stopped(
    place: CopyPlace, table: HostedTable, facts: SubscriberFacts, owner: str | None
) -> Iterator[str]:
    """Yield why a copy that is not followed any more cannot be followed again, each with its remedy."""
    yield from subscriber_checks.refusals_of_subscriber(facts, owner)
    if not place.is_ones_own and (owner is None or place.owner != shown_name(owner)):
        yield subscriber_checks.refusal_of_others(place, table, facts)


def stop(order: Order) -> Followed:
    """End following a table; the copy stays. Without the source its slot and publication stay there."""
    with subscriber_checks.opened_subscriber(order.target_url) as target:
        schema, table = parsed_name(target, order.table)
        place = CopyPlace.of(target, schema, table)
        name = place.subscription or subscriber_checks.name_of(target, schema, table)
        unsubscribe(target, name)
        stays = f"the rows that were copied stay in {schema}.{table}, and deletions do not arrive any more"
        warnings = [stays] if place.is_copy else []
        try:
            with source_checks.opened_source(order.source_url) as source:
                clear_source(source, name, slots_of_copy(target, place.oid))
        except FollowError as error:
            warnings.append(
                f"{error}; if the source comes back, run this again: until then its slot {name} keeps WAL there"
            )
        return Followed(f"{schema}.{table}", "is not followed any more", place.columns or [], name, warnings=warnings)


def status(order: Order) -> FollowingStatus:
    """Return the state of a followed table, also if the source cannot be reached."""
    with subscriber_checks.opened_subscriber(order.target_url) as target:
        schema, table = parsed_name(target, order.table)
        place = CopyPlace.of(target, schema, table)
        try:
            source: psycopg.Connection | str = source_checks.opened_source(order.source_url)
        except FollowError as error:
            source = str(error)
        try:
            found = following_status(target, source, f"{schema}.{table}", place.subscription or "")
        finally:
            if isinstance(source, psycopg.Connection):
                source.close()
    if found is None:
        raise FollowError(f"{schema}.{table} is not followed; run the command without --status to begin")
    return found


def snapshot(order: Order, shown: Shown) -> Followed:
    """Copy a table once, in one transaction."""
    with joined(order) as (source, target):
        table, _ = _table(source, target, order)
        rows = snapshots.take_snapshot(source, target, table, shown)
        names = [each.name for each in table.columns]
        return Followed(table.shown, "is copied", names, rows=rows, next=_next(target, table))


def _table(source: psycopg.Connection, target: psycopg.Connection, order: Order) -> tuple[HostedTable, CopyPlace]:
    """Return a table and the place of its copy; the columns are those of a copy that is there already."""
    table = hosted_table(source, order.table, order.columns)
    place = CopyPlace.of(target, table.facts.schema, table.facts.name)
    if not place.is_copy:
        return table, place
    copied = hosted_table(source, order.table, place.columns)
    if order.columns is not None and table.columns != copied.columns:
        raise FollowError(
            f"the copy {table.shown} has the columns {', '.join(place.columns or [])}: leave out --columns; for "
            f"others, end it with --stop, and drop table {table.shown}"
        )
    return copied, place


def _joining(
    order: Order, source: psycopg.Connection, target: psycopg.Connection, table: HostedTable, place: CopyPlace
) -> Following:
    name = place.subscription or subscriber_checks.name_of(target, table.facts.schema, table.facts.name)
    conninfo = source_checks.subscribers_conninfo(source, order.source_url, order.passfile)
    return Following(source, target, table, name, conninfo)


def _refuse(*found: str) -> None:
    if found:
        raise FollowError("\n".join(found))


def _refusals_of_owner(target: psycopg.Connection, owner: str | None) -> Iterator[str]:
    """Yield why a role cannot own a copy and register it."""
    if owner is None:
        return
    row = target.execute(_OWNER, [owner]).fetchone()
    if row is None:
        yield f"the dbdp server has no role {owner}: create it, or name another one after --owner"
    elif not row[0]:
        yield f"{owner} may not register datasets: grant dbdp_data_owner to {shown_name(owner)}"


def _refusals_of_passfile(facts: SubscriberFacts, passfile: str | None) -> Iterator[str]:
    """Yield why the password cannot be in a file."""
    if passfile is not None and not facts.is_superuser:
        yield (
            f"--passfile {passfile} is for superusers: PostgreSQL demands that a subscription of {facts.role} has the "
            "password itself; leave out --passfile, or connect as a superuser by --url"
        )


def _followed(joining: Following, done: str) -> Followed:
    table = joining.table
    return Followed(
        table=table.shown,
        done=done,
        columns=[each.name for each in table.columns],
        subscription=joining.name,
        warnings=[*source_checks.warnings(joining.source)],
        next=_next(joining.target, table),
    )


def _next(target: psycopg.Connection, table: HostedTable) -> str | None:
    """Return the statement that registers a copy, with blanks for public facts; None if it is registered."""
    if target.execute(_REGISTERED, [table.shown]).fetchone():
        return None
    declared = [each for each in table.columns if each.name not in table.key]
    features = ", ".join(f"{json.dumps(each.name, ensure_ascii=False)}: {_blank(each.type)}" for each in declared)
    name, source, declaration = map(_literal, (table.facts.name, table.shown, f"{{{features}}}"))
    return (
        f"select dbdp.register_dataset({name}, {source}, label => 'COLUMN', positive => 'VALUE', "
        f"features => {declaration}, capacity => ROWS, epsilon => 1, delta => 1e-6);"
    )


def _literal(text: str) -> str:
    """Return a text as SQL writes it; the names in it are another server's, and people run the statement."""
    return "'{}'".format(text.replace("'", "''"))


def _blank(type_name: str) -> str:
    """Return what to declare of a column of a type."""
    if type_name == "boolean":
        return "[0, 1]"
    is_number = type_name.startswith(("smallint", "integer", "bigint", "real", "double", "numeric"))
    return "[LOWER, UPPER]" if is_number else '["CATEGORY", …]'
