"""Follows a table: a publication and a slot on the hosted server, a copy and a subscription on dbdp's server.

All four have one name, or that of the table, so that a later run finds them. The copy and its subscription are created
in one transaction. The password is in no statement's text and in no parameter, which a server may log: COPY brings it
to a temporary table, from which a block of PL/pgSQL reads it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import LiteralString

import psycopg
from psycopg import sql

from dbdp.deployment.following import source_checks, subscriber_checks
from dbdp.deployment.following.following_status import is_lost, slot_of
from dbdp.deployment.following.hosted_table import FollowError, HostedTable
from dbdp.deployment.following.removal import PATIENCE, clear_source, slots_of_copy, unsubscribe
from dbdp.deployment.following.subscriber_checks import FIRST_AS_OWNER, MARK, CopyPlace, SubscriberFacts

FAILURES = 2  # of the first copy, after which it is given up
Shown = Callable[[str, int, int], None]  # a stage, the rows that are done, and about how many there are
# Settings of a superuser for the transaction that holds the password.
_QUIET = {
    "log_statement": "none",
    "log_parameter_max_length": "0",
    "log_min_messages": "panic",
    "log_min_error_statement": "panic",
    "log_min_duration_statement": "-1",
    "log_error_verbosity": "terse",
    "pg_stat_statements.track_utility": "off",
    "pg_stat_statements.track": "none",
}
_SUBSCRIBE: LiteralString = """do $subscribing$ begin
execute (select pg_catalog.format(
  'create subscription %1$I connection %2$L publication %1$I '
  'with (create_slot = false, slot_name = %1$L, copy_data = true)',
  name, conninfo) from pg_temp.dbdp_source);
end $subscribing$"""
_RECONNECT: LiteralString = """do $subscribing$ begin
execute (select pg_catalog.format('alter subscription %I connection %L', name, conninfo) from pg_temp.dbdp_source);
end $subscribing$"""
_STATE: LiteralString = """
select f.srsubstate in ('s', 'r') as is_copied,  -- all rows are there
       coalesce(p.tuples_processed, 0)::int8 as rows,
       exists (select from pg_stat_subscription as w where w.relid = f.srrelid and w.pid is not null) as works,
       coalesce(e.sync_error_count, 0)::int8 as failures
from pg_subscription as s
join pg_subscription_rel as f on f.srsubid = s.oid
left join pg_stat_progress_copy as p on p.relid = f.srrelid and p.datname = current_database()
left join pg_stat_subscription_stats as e on e.subid = s.oid
where s.subname = %s
"""
_GRANTED: LiteralString = """
select r.rolname::text  -- null for everybody
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
cross join lateral (select distinct grantee from aclexplode(c.relacl)) as a
left join pg_roles as r on r.oid = a.grantee
where n.nspname = %s and c.relname = %s and a.grantee <> c.relowner
"""
_TRIGGERS: LiteralString = (
    "select format('trigger %%I', tgname) as code from pg_trigger where tgrelid = %(copy)s::oid and not tgisinternal"
)
# Other code of a table's owner that runs as whoever writes it.
_CODE: LiteralString = """
union all
select format('rule %%I', rulename) from pg_rewrite where ev_class = %(copy)s::oid
union all
select format('constraint %%I', conname) from pg_constraint where conrelid = %(copy)s::oid and contype in ('c', 'x')
union all
select format('index %%s', indexrelid::regclass) from pg_index
where indrelid = %(copy)s::oid and (indexprs is not null or indpred is not null)
union all
select format('default of %%I', a.attname)
from pg_attrdef as d
join pg_attribute as a on a.attrelid = d.adrelid and a.attnum = d.adnum
where d.adrelid = %(copy)s::oid
"""


@dataclass(frozen=True)
class Following:
    """A table of a hosted server, its copy on dbdp's server, and the name of all that joins them."""

    source: psycopg.Connection
    target: psycopg.Connection
    table: HostedTable
    name: str
    conninfo: str  # by which dbdp's server connects to the source

    def start(self, owner: str | None, *, inserts_only: bool, shown: Shown) -> None:
        """Publish the table, create its copy and subscribe; wait until the rows are copied. Undo all if that fails."""
        unsubscribe(self.target, self.name)  # of a copy that was dropped
        with self._undone(drops_copy=True):
            self._publish(inserts_only=inserts_only)
            with self.target.transaction():
                self._create_copy(owner, keyed=not inserts_only)
                self._subscribe()
            self.wait(shown)

    def resume(self, shown: Shown) -> None:
        """Connect an interrupted subscription again, and wait until the rows are copied.

        Raises FollowError if changes were lost meanwhile.
        """
        if is_lost(slot_of(self.source, self.name)):
            raise FollowError(f"the source has removed changes that {self.table.shown} lacks: run it with --resync")
        if self._facts.version < FIRST_AS_OWNER:
            self._check_copy()
        with self.target.transaction():
            self._quietly(_RECONNECT)
            self.target.execute(sql.SQL("alter subscription {} enable").format(sql.Identifier(self.name)))
        self.wait(shown)

    def resync(self, *, inserts_only: bool, shown: Shown) -> None:
        """Empty the copy and subscribe again; the table, its dataset and its budget stay."""
        self._check_copy()
        unsubscribe(self.target, self.name)
        self._clear_source()
        with self._undone(drops_copy=False):
            self._publish(inserts_only=inserts_only)
            with self.target.transaction():
                self._empty_copy()
                self._subscribe()
            self.wait(shown)

    def wait(self, shown: Shown) -> None:
        """Wait until the first copy is complete; raise FollowError if it fails again and again."""
        last_sign = time.monotonic()
        while True:
            row = self.target.execute(_STATE, [self.name]).fetchone()
            if row is None:
                raise FollowError(f"the subscription {self.name} was dropped meanwhile; run the command again")
            is_copied, rows, works, failures = row
            shown("copy", rows, max(int(self.table.facts.rows), rows, 1))
            if is_copied:
                return
            last_sign = time.monotonic() if works else last_sign
            if failures >= FAILURES or time.monotonic() > last_sign + PATIENCE:
                raise FollowError(
                    "the first copy fails; the log of dbdp's server says why, often a connection that only this "
                    "machine can make, or a missing privilege on the source"
                )
            time.sleep(0.1)

    @cached_property
    def _facts(self) -> SubscriberFacts:
        return SubscriberFacts.of(self.target)

    def _place(self) -> CopyPlace:
        return CopyPlace.of(self.target, self.table.facts.schema, self.table.facts.name)

    def _clear_source(self) -> None:
        clear_source(self.source, self.name, slots_of_copy(self.target, self._place().oid))

    def _publish(self, *, inserts_only: bool) -> None:
        self._clear_source()  # of a run that was killed
        source_checks.create_publication(self.source, self.name, self.table, inserts_only=inserts_only)
        self.source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name])

    def _create_copy(self, owner: str | None, *, keyed: bool) -> None:
        create_copy(self.target, self.table, keyed=keyed)
        if owner is not None:
            self.target.execute(
                sql.SQL("alter table {} owner to {}").format(self.table.identifier, sql.Identifier(owner))
            )

    def _empty_copy(self) -> None:
        self.target.execute(sql.SQL("lock table {} in access exclusive mode").format(self.table.identifier))
        self._check_copy()  # again, now that nobody can change it
        self.target.execute(sql.SQL("truncate {}").format(self.table.identifier))

    def _check_copy(self) -> None:
        """Raise FollowError if code of the copy's owner would run with other privileges, now or later."""
        place = self._place()
        subscriber_checks.check_owner(place, self.table, self._facts)
        query = _TRIGGERS if self._facts.version >= FIRST_AS_OWNER else _TRIGGERS + _CODE
        code = ", ".join(each for (each,) in self.target.execute(query, {"copy": place.oid}).fetchall())
        if place.kind != "r" or code:
            raise FollowError(f"{self.table.shown} has code that would run as you ({code}): drop it first")

    def _subscribe(self) -> None:
        try:
            self._quietly(_SUBSCRIBE)
        except psycopg.Error as error:  # its context quotes the password
            refusal = (error.diag.message_primary or "the connection was lost").partition("\n")[0]
            raise FollowError(
                f"dbdp's server cannot subscribe to the source: {refusal}; it connects from its own machine, to the "
                "address of your URL, with the password of your URL or of --passfile there"
            ) from None

    def _quietly(self, statement: LiteralString) -> None:
        """Run a statement that reads name and password from a table, which ends with the transaction."""
        for setting, text in _QUIET.items() if self._facts.is_superuser else ():
            self.target.execute("select pg_catalog.set_config(%s, %s, true)", [setting, text], prepare=False)
        self.target.execute("create temporary table dbdp_source (name text, conninfo text) on commit drop")
        with self.target.cursor().copy("copy pg_temp.dbdp_source from stdin") as given:
            given.write_row([self.name, self.conninfo])
        self.target.execute(statement, prepare=False)

    @contextmanager
    def _undone(self, *, drops_copy: bool) -> Iterator[None]:
        """Remove everything that the block created if it fails, or is interrupted."""
        try:
            yield
        except BaseException:
            unsubscribe(self.target, self.name)
            self._clear_source()
            if drops_copy and self._place().is_copy:
                self.target.execute(sql.SQL("drop table {}").format(self.table.identifier))
            raise


def create_copy(target: psycopg.Connection, table: HostedTable, *, keyed: bool) -> None:
    """Create the copy of a table for its owner only, with a comment by which a later run recognises it."""
    target.execute(table.definition(keyed=keyed))
    for (role,) in target.execute(_GRANTED, [table.facts.schema, table.facts.name]).fetchall():
        grantee = sql.Identifier(role) if role else sql.SQL("public")
        target.execute(sql.SQL("revoke all on table {} from {}").format(table.identifier, grantee))
    comment = sql.Literal(f"{MARK}: change its rows on their own server")
    target.execute(sql.SQL("comment on table {} is {}").format(table.identifier, comment))
