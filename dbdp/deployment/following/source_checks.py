"""The hosted server: a connection to it, and why a table of it cannot be followed yet. Nothing is changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import class_row

from dbdp.deployment.extension.installer import reached
from dbdp.deployment.following.hosted_table import FollowError, HostedTable, refused_columns
from dbdp.deployment.following.hosting_services import service_of
from dbdp.sessions.connections import libpq_url

FIRST_FOLLOWED, FIRST_WITH_COLUMNS, FIRST_WITH_GENERATED = 13, 15, 18  # versions of PostgreSQL
TABLES = ("r", "p")  # kinds of relations: tables, and partitioned ones
SLOTS = 2  # for the changes, and for the first copy
TIMEOUT = 20  # seconds for a connection
_OF_CLIENT = ("client_encoding", "application_name", "fallback_application_name", "passfile", "connect_timeout")
_ADDRESS = ("host", "port", "dbname", "user")
_FACTS: LiteralString = """
select current_setting('server_version_num')::int4 / 10000 as version,
       current_setting('wal_level') as wal_level,
       pg_is_in_recovery() as is_standby,
       current_setting('max_replication_slots')::int4 - (select count(*) from pg_replication_slots)::int4 as slots,
       current_setting('max_wal_senders')::int4 - (select count(*) from pg_stat_replication)::int4 as senders,
       coalesce(current_setting('max_slot_wal_keep_size', true), '-1') as kept,
       current_setting('synchronous_standby_names') as awaited,
       r.rolsuper or r.rolreplication or exists (
         select
         from pg_roles as g
         where g.rolname in ('rds_replication', 'rds_superuser') and pg_has_role(r.oid, g.oid, 'member')
       ) as replicates,
       r.rolsuper or has_database_privilege(current_database(), 'create') as creates,
       quote_ident(r.rolname) as role,
       quote_ident(current_database()) as database
from pg_roles as r
where r.rolname = current_user
"""
_DATASET: LiteralString = (
    "select to_regrole('dbdp_owner') is not null and has_table_privilege(to_regrole('dbdp_owner')::oid, %s::oid, "
    "'select') and not (select rolsuper from pg_roles where oid = to_regrole('dbdp_owner'))"
)


@dataclass(frozen=True)
class SourceFacts:
    """What decides whether a server can be followed."""

    version: int
    wal_level: str
    is_standby: bool
    slots: int  # free ones
    senders: int
    kept: str  # max_slot_wal_keep_size
    awaited: str  # synchronous_standby_names
    replicates: bool
    creates: bool
    role: str
    database: str

    @classmethod
    def of(cls, source: psycopg.Connection) -> "SourceFacts":
        """Return the facts of a server."""
        with source.cursor(row_factory=class_row(cls)) as cursor:
            found = cursor.execute(_FACTS).fetchone()
        if found is None:
            raise FollowError("the source does not show its roles, which PostgreSQL does; connect to the server itself")
        return found


def opened_source(url: str) -> psycopg.Connection:
    """Connect to the hosted server; no message quotes the URL, since it may hold a password."""
    try:
        return reached(url, connect_timeout=TIMEOUT)
    except ValueError as error:
        raise FollowError(f"source: {error}") from None


def subscribers_conninfo(source: psycopg.Connection, url: str, passfile: str | None) -> str:
    """Return the parameters by which dbdp's server connects to the source.

    They hold the password, unless it is in a file of that server's account.
    """
    used = source.info.get_parameters()  # also of the environment
    given = {**conninfo_to_dict(libpq_url(url)), **{name: used[name] for name in _ADDRESS if name in used}}
    kept = {name: str(text) for name, text in given.items() if name not in _OF_CLIENT and name != "password"}
    secret = {"passfile": passfile} if passfile else {"password": source.info.password}
    kept["connect_timeout"] = str(TIMEOUT)  # so that nothing waits long for a source that is gone
    return make_conninfo("", **kept, **{name: text for name, text in secret.items() if text})


def refusals(source: psycopg.Connection, table: HostedTable, subscriber: int, *, inserts_only: bool) -> Iterator[str]:
    """Yield why a table cannot be followed by a server of this version, each with its remedy."""
    facts = SourceFacts.of(source)
    yield from _of_server(source, facts)
    yield from _of_role(source, facts, table)
    yield from _of_table(source, facts, table)
    yield from refused_columns(table, generated_arrive=min(facts.version, subscriber) >= FIRST_WITH_GENERATED)
    if not inserts_only and table.facts.kind in TABLES:
        yield from _of_identity(table)


def _of_server(source: psycopg.Connection, facts: SourceFacts) -> Iterator[str]:
    if facts.is_standby:
        yield "the source is a standby: connect to its primary"
    if facts.version < FIRST_FOLLOWED:
        yield (f"the source is PostgreSQL {facts.version}: follow one of {FIRST_FOLLOWED} or newer, or use --snapshot")
    if facts.wal_level != "logical":
        service = service_of(source)
        yield (
            f"the source ({service.name}) has wal_level {facts.wal_level}, and logical replication needs logical: "
            f"{service.logical}; if you cannot, use --snapshot"
        )
    if "*" in facts.awaited:
        yield (
            f"synchronous_standby_names of the source is {facts.awaited}, so that commits of your application could "
            "wait for the dbdp server: name the standbys there instead of *"
        )
    for setting, free in (("max_replication_slots", facts.slots), ("max_wal_senders", facts.senders)):
        if free < SLOTS:
            yield (
                f"the source has {max(free, 0)} left of {setting}, and the first copy needs {SLOTS}: raise that "
                "setting, or drop slots that nobody uses (pg_replication_slots)"
            )


def _of_role(source: psycopg.Connection, facts: SourceFacts, table: HostedTable) -> Iterator[str]:
    if not facts.replicates:
        yield f"{facts.role} may not replicate: {service_of(source).replicating.format(role=facts.role)}"
    if not facts.creates:
        yield f"{facts.role} may not publish: grant create on database {facts.database} to {facts.role}"
    if not table.facts.is_own:
        yield (
            f"{table.shown} belongs to {table.facts.owner}, and only its owner may publish it: connect as that role, "
            f"or grant {table.facts.owner} to {facts.role}"
        )


def _of_table(source: psycopg.Connection, facts: SourceFacts, table: HostedTable) -> Iterator[str]:
    if table.facts.kind not in TABLES:
        yield f"{table.shown} is no table, and only tables are replicated: use --snapshot"
    elif table.facts.persistence != "p":
        yield f"{table.shown} is unlogged, and not replicated: alter table {table.shown} set logged, or use --snapshot"
    yield from refusals_of_rows(source, facts.role, table)
    if not table.is_whole and facts.version < FIRST_WITH_COLUMNS:
        yield (
            f"the source is PostgreSQL {facts.version}, which publishes whole tables: leave out --columns, so that all "
            "columns are copied, or use --snapshot"
        )


def refusals_of_rows(source: psycopg.Connection, role: str, table: HostedTable) -> Iterator[str]:
    """Yield why the rows of a table cannot be copied by any way, each with its remedy."""
    if table.facts.is_filtered:
        forced, other = f"alter table {table.shown} no force row level security", "connect as the table's owner"
        yield (
            f"row-level security hides rows of {table.shown} from {role}, so that the first copy would lack "
            f"them: {forced if table.facts.is_own else other}, or alter role {role} with bypassrls"
        )
    (is_dataset,) = source.execute(_DATASET, [table.facts.oid]).fetchone() or (False,)
    if is_dataset:
        yield (
            f"{table.shown} is read by dbdp on the source already, and a second budget would add up with the first "
            "one: train there"
        )


def _of_identity(table: HostedTable) -> Iterator[str]:
    """Yield why updates and deletes cannot be published: they would fail on the source, in the application."""
    facts = table.facts
    if facts.identity == "f" and not table.is_whole:
        yield (
            f"{table.shown} has replica identity full, with which updates fail unless all columns are published: leave "
            f"out --columns, or, if nobody else needs it, alter table {table.shown} replica identity default"
        )
    elif facts.identity == "n" or not table.key:
        key = " and a primary key" if not table.key else ""
        yield (
            f"{table.shown} needs replica identity default{key}, or updates of it fail once it is published: "
            f"{_remedy_of_identity(table)}, or copy new rows only, with --inserts-only"
        )


def _remedy_of_identity(table: HostedTable) -> str:
    if table.facts.identity == "n":
        return f"alter table {table.shown} replica identity default"
    return (
        f"alter table {table.shown} add primary key (…) of the columns that tell rows apart, or else alter table "
        f"{table.shown} add row_id bigint generated always as identity primary key"
    )


def warnings(source: psycopg.Connection) -> Iterator[str]:
    """Yield advice about a source that is followed."""
    if SourceFacts.of(source).kept == "-1":
        yield (
            "max_slot_wal_keep_size of the source is -1: if dbdp's server is down for long, the source's disk fills "
            "with WAL. Set it, to 10GB for example, and watch `dbdp follow … --status`"
        )


def create_publication(source: psycopg.Connection, name: str, table: HostedTable, *, inserts_only: bool) -> None:
    """Publish the copied columns of a table, under a name of dbdp's.

    They are listed if possible, also if they are all: a column that is added later does not stop the changes.
    """
    is_listed = SourceFacts.of(source).version >= FIRST_WITH_COLUMNS and table.facts.identity != "f"
    names = sql.SQL(" ({})").format(table.names) if is_listed else sql.SQL("")
    source.execute(
        sql.SQL("create publication {} for table {}{} with (publish = {}, publish_via_partition_root = true)").format(
            sql.Identifier(name), table.identifier, names, sql.Literal(_operations(inserts_only))
        )
    )


def _operations(inserts_only: bool) -> str:
    return "insert" if inserts_only else "insert, update, delete, truncate"
