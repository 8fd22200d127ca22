"""The dbdp server that follows: a connection to it, the copied table there, and why it cannot follow. It only reads.

The copy must lend no privileges. On PostgreSQL 15 the apply worker runs triggers of the table (`enable always`) as the
subscription's owner, a superuser; from 16 on as the table's owner. So on 15 the copy belongs to that superuser.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg.rows import class_row

from dbdp.deployment.extension.installer import check_supported, reached
from dbdp.deployment.following.hosted_table import FollowError, HostedTable, shown_name
from dbdp.sessions import support

MARK = "copied by dbdp follow"  # the beginning of the comment on a copy
FIRST_AS_OWNER = 16  # version of PostgreSQL that runs code of a table as the table's owner
WORKERS = 2  # for the changes, and for the first copy
_FACTS: LiteralString = """
select current_setting('server_version_num')::int4 / 10000 as version,
       exists (select from pg_extension where extname = 'dbdp') as has_dbdp,
       quote_ident(r.rolname) as role,
       r.rolsuper as is_superuser,
       r.rolsuper or (
         has_database_privilege(current_database(), 'create')
         and coalesce(pg_has_role(r.oid, to_regrole('pg_create_subscription')::oid, 'usage'), false)
       ) as subscribes,
       quote_ident(current_database()) as database,
       current_setting('max_logical_replication_workers')::int4
         - (select count(*) from pg_stat_subscription where pid is not null)::int4 as workers,
       coalesce(current_setting('max_active_replication_origins', true), current_setting('max_replication_slots'))::int4
         - (select count(*) from pg_replication_origin)::int4 as origins,
       current_setting('max_worker_processes')::int4 - 1  -- the launcher
         - (select count(*) from pg_stat_subscription where pid is not null)::int4 as processes,
       current_setting('max_sync_workers_per_subscription')::int4 as copying
from pg_roles as r
where r.rolname = current_user
"""
_PLACE: LiteralString = """
select n.oid is not null as has_schema,
       n.oid is not null and has_schema_privilege(n.oid, 'create') as may_create,
       n.oid is not null and has_schema_privilege('dbdp_owner', n.oid, 'usage') as is_reachable,
       c.oid::int8 as oid,
       c.relkind::text as kind,
       quote_ident(r.rolname) as owner,
       coalesce(r.rolsuper, false) as of_superuser,
       coalesce(pg_has_role(c.relowner, 'usage'), false) as is_own,
       r.rolname is not distinct from current_user as is_ones_own,
       coalesce(starts_with(obj_description(c.oid, 'pg_class'), %s), false) as is_copy,
       (
         select array_agg(a.attname::text order by a.attnum)
         from pg_attribute as a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
       ) as columns,
       exists (select from pg_index as i where i.indrelid = c.oid and i.indisprimary) as is_keyed,
       (select s.subname::text from pg_subscription as s where s.oid = f.srsubid) as subscription
from (values (%s::text, %s::text)) as given (schema, name)
left join pg_namespace as n on n.nspname = given.schema
left join pg_class as c on c.relnamespace = n.oid and c.relname = given.name
left join pg_roles as r on r.oid = c.relowner
left join pg_subscription_rel as f on f.srrelid = c.oid
"""
_LENDING: LiteralString = """
select c.oid::regclass::text as name, c.relowner::regrole::text as owner, quote_ident(o.rolname) as superuser
from pg_subscription as s
join pg_roles as o on o.oid = s.subowner
join pg_subscription_rel as f on f.srsubid = s.oid
join pg_class as c on c.oid = f.srrelid
join pg_roles as t on t.oid = c.relowner
where s.subdbid = (select oid from pg_database where datname = current_database())
  and o.rolsuper and not t.rolsuper
"""
_WITH_LENDING = "and s.subrunasowner"  # a column that PostgreSQL 15 lacks, where each subscription lends
_SYSTEM = "select system_identifier from pg_control_system()"


@dataclass(frozen=True)
class SubscriberFacts:
    """What decides whether a dbdp server can follow a table."""

    version: int
    has_dbdp: bool
    role: str
    is_superuser: bool
    subscribes: bool
    database: str
    workers: int  # free ones
    origins: int
    processes: int  # of max_worker_processes
    copying: int  # max_sync_workers_per_subscription

    @classmethod
    def of(cls, target: psycopg.Connection) -> "SubscriberFacts":
        """Return the facts of a server."""
        with target.cursor(row_factory=class_row(cls)) as cursor:
            (found,) = cursor.execute(_FACTS).fetchall()
        return found


@dataclass(frozen=True)
class CopyPlace:
    """The place of a copy: its schema, and the table that is there already, None without one."""

    has_schema: bool
    may_create: bool
    is_reachable: bool
    oid: int | None
    kind: str | None
    owner: str | None
    of_superuser: bool
    is_own: bool
    is_ones_own: bool  # whether the role itself owns it
    is_copy: bool
    columns: list[str] | None
    is_keyed: bool  # so that updates and deletes arrive
    subscription: str | None

    @classmethod
    def of(cls, target: psycopg.Connection, schema: str, name: str) -> "CopyPlace":
        """Return the place of a table's copy, which has the name of the table."""
        with target.cursor(row_factory=class_row(cls)) as cursor:
            return cursor.execute(_PLACE, [MARK, schema, name]).fetchall()[0]


def opened_subscriber(url: str) -> psycopg.Connection:
    """Connect to a dbdp server that can be written; no message quotes the URL, since it may hold a password."""
    try:
        target = reached(url)
    except ValueError as error:
        raise FollowError(f"dbdp server: {error}") from None
    check_supported(target)
    if not SubscriberFacts.of(target).has_dbdp:
        raise FollowError(
            "the server of --url has no dbdp in this database, and it is the one that follows: run `dbdp install` "
            "there first. The hosted server comes first among the arguments"
        )
    return target


def name_of(target: psycopg.Connection, schema: str, table: str) -> str:
    """Return the name of subscription, publication and slot: the same in each run, for this server's table only."""
    row = target.execute("select oid::int8 from pg_database where datname = current_database()").fetchone()
    exact = f"{system_of(target)}/{row}/{schema}.{table}"
    readable = re.sub(r"[^a-z0-9_]", "_", table.lower())[:40]
    return f"dbdp_{readable}_{hashlib.sha256(exact.encode()).hexdigest()[:8]}"


def system_of(connection: psycopg.Connection) -> int | None:
    """Return the identity of a server; None if the role may not see it."""
    try:
        row = connection.execute(_SYSTEM).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return None
    return row[0] if row else None


def lending(version: int) -> str:
    """Return the query for tables that an apply worker writes with more privileges than their owner has."""
    return f"{_LENDING} {_WITH_LENDING}" if version >= FIRST_AS_OWNER else _LENDING


def refusals_of_subscriber(facts: SubscriberFacts, owner: str | None) -> Iterator[str]:
    """Yield why a dbdp server cannot subscribe, each with its remedy."""
    if not facts.subscribes:
        create = (
            f"grant create on database {facts.database} to {facts.role}; grant pg_create_subscription to {facts.role}; "
            "or "
        )
        yield (
            f"{facts.role} may not subscribe on the dbdp server: "
            f"{create if facts.version >= FIRST_AS_OWNER else ''}connect as a superuser"
        )
    if owner is not None and facts.version < FIRST_AS_OWNER:
        yield (
            f"--owner {owner} is not safe on PostgreSQL {facts.version}, where triggers of the table's owner would run "
            "as a superuser: leave it out, so that the copy belongs to you and you register it, or move dbdp to "
            f"PostgreSQL {max(support.MAJORS)}"
        )
    limits = {
        "max_logical_replication_workers": (facts.workers, WORKERS),
        "max_worker_processes": (facts.processes, WORKERS),
        "max_active_replication_origins" if facts.version >= 18 else "max_replication_slots": (facts.origins, WORKERS),
        "max_sync_workers_per_subscription": (facts.copying, 1),
    }
    for setting, (free, needed) in limits.items():
        if free < needed:
            yield (
                f"the dbdp server has {max(free, 0)} left of {setting}, and {needed} are needed: alter system set "
                f"{setting} to more, and restart it"
            )


def refusals_of_place(place: CopyPlace, table: HostedTable, facts: SubscriberFacts) -> Iterator[str]:
    """Yield why a copy cannot be made at a place, each with its remedy."""
    schema = shown_name(table.facts.schema)
    if not place.has_schema:
        yield (
            f"the dbdp server has no schema {schema}, and a copy has the same name as its table: create schema "
            f"{schema}; grant usage on schema {schema} to dbdp_owner"
        )
    elif not place.may_create:
        yield f"{facts.role} may not create tables in schema {schema}: grant create on schema {schema} to {facts.role}"
    elif not place.is_reachable:
        yield f"dbdp_owner may not use schema {schema}: grant usage on schema {schema} to dbdp_owner"
    if place.oid is None:
        return
    if place.is_copy and place.is_ones_own:
        yield (
            f"{table.shown} is a copy that is not followed any more: add --resync to empty it and copy the rows again, "
            "with its dataset and budget"
        )
    elif place.is_copy:
        yield refusal_of_others(place, table, facts)
    else:
        yield refusal_of_unmarked(table)


def refusal_of_unmarked(table: HostedTable) -> str:
    """Return why a table that is no copy is not written."""
    return f"the dbdp server has another table {table.shown}: rename it, or use another database for the copy"


def refusal_of_others(place: CopyPlace, table: HostedTable, facts: SubscriberFacts) -> str:
    """Return why no rows are copied to a table of another role: any owner can give a table the mark of a copy."""
    named = f"; if that role may have the rows, run it with --resync --owner {place.owner}"
    return (
        f"{table.shown} of the dbdp server belongs to {place.owner}, who would read the rows: rename it, or connect as "
        f"{place.owner}{named if facts.version >= FIRST_AS_OWNER else ''}"
    )


def check_owner(place: CopyPlace, table: HostedTable, facts: SubscriberFacts) -> None:
    """Raise FollowError if the owner of a copy would get the subscription's privileges by a trigger."""
    if facts.version < FIRST_AS_OWNER and facts.is_superuser and not place.of_superuser:
        raise FollowError(
            f"{table.shown} belongs to {place.owner}, and on PostgreSQL {facts.version} a trigger of its owner would "
            f"run as a superuser: alter table {table.shown} owner to {facts.role}, and revoke what was granted on it"
        )
