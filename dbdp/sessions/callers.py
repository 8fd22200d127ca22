"""Checks whose code may run in a transaction with the rights of its session.

The owner of a view, or of a table with a trigger, a rule, a default, a CHECK or a policy, writes code that runs with
the rights of those who use it; a deferred trigger even runs after their last statement. A statement that runs a
relation's code locks the relation until the transaction ends, so the transaction's locks list all owners whose code
may run now.
"""

from dbdp.sessions.server import ServerSession
from dbdp.sessions.session import Row

Lock = tuple[str, int, str]  # of a transaction on a relation, in a mode

# Locks of this transaction on relations of other roles. For a table that is read, the code that a plan may evaluate
# counts; for one that is written, any code may run. An old snapshot shows neither new code nor a new relation. A
# group's relations count as another role's: each of its members may have written their code. Only a superuser's do not
# count. This session itself wrote the code of its temporary tables, before the snapshot or in this transaction. A
# temporary table without triggers, rules, defaults and user-defined types (from oid 16384 on) runs no code when it is
# written either.
_FOREIGN = """
select l.virtualtransaction as transaction,
       l.relation::int8 as relation,
       l.mode,
       l.relation::regclass::text as name,
       c.relowner::regrole::text as owner
from pg_locks as l
left join pg_class as c on c.oid = l.relation
where l.pid = pg_backend_pid()
and l.locktype = 'relation'
and l.granted
and l.mode <> 'SIReadLock'
and l.database = (select d.oid from pg_database as d where d.datname = current_database())
and case
    when c.oid is null then pg_table_is_visible(l.relation) is not null -- of a relation that was dropped it is null
    else c.relkind in ('r', 'p', 'v', 'm', 'f')
    and c.relowner not in (
        select r.oid from pg_roles as r where r.rolsuper or r.rolname in (session_user, 'dbdp_owner')
    )
    and (
        l.mode not in ('AccessShareLock', 'RowShareLock')
        and (
            c.relnamespace <> pg_my_temp_schema()
            or c.relkind <> 'r'
            or c.relhastriggers
            or c.relhasrules
            or exists (
                select from pg_attribute as a where a.attrelid = c.oid and (a.atthasdef or a.atttypid >= 16384)
            )
        )
        or c.relnamespace <> pg_my_temp_schema()
        and current_setting('transaction_isolation') in ('repeatable read', 'serializable')
        or c.relkind in ('v', 'p')
        or c.relispartition
        or c.relrowsecurity
        or c.relchecks > 0
        or exists (
            select from pg_index as i where i.indrelid = c.oid and num_nonnulls(i.indexprs, i.indpred) > 0
        )
        or exists (
            select from pg_statistic_ext as s where s.stxrelid = c.oid and s.stxexprs is not null
        )
    )
end
"""


class Transactions:
    """The locks of the current transaction that an interface took itself; owners' code has no rights under them."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._taken: set[Lock] = set()

    def check(self) -> None:
        """Raise PermissionError if others' code may run in this transaction with the rights of its session.

        Proof. Code of a view, a rule, a trigger, a default, a generated column, a CHECK, a policy, an index or a
        statistic runs in a statement that names its relation, or at the end of that statement's transaction. Until
        then the statement holds a lock on the relation, RowExclusiveLock or above where it writes. So the query lists
        the lock on every relation that neither a superuser nor the session's user owns. Those that `note` recorded
        are excepted: an interface took them, which reads with the restricted rights of the relation's owner.
        """
        for row in self._foreign():
            if _lock(row) not in self._taken:
                raise PermissionError(
                    f"this transaction uses {row['name']} of role {row['owner'] or 'unknown'}, whose code there (a "
                    "view, a trigger, a rule, a default, a policy, an index) could call dbdp with your rights; call "
                    "dbdp in a transaction of its own"
                )

    def note(self) -> None:
        """Record the locks that an interface took since the check."""
        self._taken = {_lock(row) for row in self._foreign()}

    def _foreign(self) -> list[Row]:
        return self._session.query(_FOREIGN)


def _lock(row: Row) -> Lock:
    return row["transaction"], row["relation"], row["mode"]
