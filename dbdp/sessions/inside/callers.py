"""Checks whose code may run in a transaction with the rights of its session, or read from its cursors.

The owner of a view, or of a table with a trigger, a rule, a default, a CHECK or a policy, writes code that runs with
the rights of those who use it; a deferred trigger even runs after their last statement. A statement that runs a
relation's code locks the relation until the transaction ends, so the transaction's locks list all relations whose code
may run now.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dbdp.sessions.inside.backend import LOCAL_USER, active_portal, backend, identity, is_role_taken
from dbdp.sessions.session import Row, Session

Lock = tuple[str, int, str]  # of a transaction on a relation, in a mode

# Locks of this transaction on relations in which code of other roles may run. For a table that is read, the code that a
# plan may evaluate counts; for one that is written, any code may run. An old snapshot shows neither new code nor a new
# relation. A group's relations count as another role's: each of its members may have written their code. Only a
# superuser's do not count. This session itself wrote the code of its temporary tables, before the snapshot or in this
# transaction. A temporary table without triggers, rules, defaults and others' types runs no code when it is written
# either.
#
# Code need not be the relation's owner's. So `reached` follows the server's own record of dependencies from a relation
# to all that it is made of, and asks for the owner of each type, function and operator: columns have types, which are
# domains over, arrays of, ranges over or rows of others; domains and defaults, generated columns, CHECK and exclusion
# constraints, foreign keys, indexes, rules, triggers, policies and statistics have functions, operators and classes of
# these. The owner of a type gives it casts, which a plain `::text` runs, and a domain its checks. A cast into another
# role's type needs the name of that type, and does not count. And whoever has the privilege TRIGGER makes triggers,
# which have no owner. Numbers below 16384 are the server's own objects.
#
# A view may be dropped while it is read, by its own code; a table may not. So what was used and is gone counts if the
# transaction dropped a rule, of which each view has one: it holds a lock on that too.
_FOREIGN = """
with recursive trusted as materialized (
    select r.oid
    from pg_roles as r
    where r.rolsuper
    or r.rolname in (session_user, 'dbdp_owner')
),
used as materialized (
    select l.virtualtransaction as transaction,
           l.pid,
           l.relation,
           l.mode,
           l.mode not in ('AccessShareLock', 'RowShareLock') as is_written
    from pg_locks as l
    where l.pid = pg_backend_pid()
    and l.locktype = 'relation'
    and l.granted
    and l.mode <> 'SIReadLock'
    and l.database = (select d.oid from pg_database as d where d.datname = current_database())
    and l.relation >= 16384
),
reached (relation, is_written, class, object) as (
    select u.relation, u.is_written, s.class, s.object
    from used as u
    join pg_class as c on c.oid = u.relation
    cross join lateral (
        values ('pg_class'::regclass, c.oid), ('pg_type'::regclass, c.reltype)
    ) as s (class, object)
    where c.relkind in ('r', 'p', 'v', 'm', 'f')
    and c.relnamespace <> 'dbdp'::regnamespace
    and s.object >= 16384
    union
    select r.relation, r.is_written, n.class, n.object
    from reached as r
    cross join lateral (
        select d.refclassid as class, d.refobjid as object
        from pg_depend as d
        where d.classid = r.class
        and d.objid = r.object
        and d.refclassid in (
            'pg_type'::regclass, 'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass,
            'pg_opfamily'::regclass
        )
        union all
        select d.classid, d.objid
        from pg_depend as d
        where d.refclassid = r.class
        and d.refobjid = r.object
        and d.deptype in ('a', 'i')
        and case d.classid
            when 'pg_attrdef'::regclass then r.is_written
            when 'pg_trigger'::regclass then r.is_written
            when 'pg_rewrite'::regclass then r.is_written or exists (
                select from pg_rewrite as w where w.oid = d.objid and w.ev_type = '1'
            )
            when 'pg_class'::regclass then exists (select from pg_index as i where i.indexrelid = d.objid)
            else d.classid in (
                'pg_constraint'::regclass, 'pg_policy'::regclass, 'pg_statistic_ext'::regclass, 'pg_amop'::regclass,
                'pg_amproc'::regclass
            )
        end
        union all
        select 'pg_type'::regclass, a.atttypid
        from pg_type as t
        join pg_attribute as a on a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
        where r.class = 'pg_type'::regclass
        and t.oid = r.object
        union all
        select 'pg_proc'::regclass, k.castfunc
        from pg_cast as k
        join pg_type as t on t.oid = k.casttarget
        where r.class = 'pg_type'::regclass
        and k.castsource = r.object
        and (t.oid < 16384 or t.typowner in (select o.oid from trusted as o))
        offset 0 -- by indexes, for each object that is reached
    ) as n
    where n.object >= 16384
),
others as materialized (
    select r.relation, r.is_written
    from reached as r
    join pg_type as t on r.class = 'pg_type'::regclass and t.oid = r.object
    where t.typowner not in (select o.oid from trusted as o)
    and t.typrelid <> r.relation
    union
    select r.relation, r.is_written
    from reached as r
    join pg_proc as p on r.class = 'pg_proc'::regclass and p.oid = r.object
    where p.proowner not in (select o.oid from trusted as o)
    union
    select r.relation, r.is_written
    from reached as r
    join pg_operator as p on r.class = 'pg_operator'::regclass and p.oid = r.object
    where p.oprowner not in (select o.oid from trusted as o)
)
select l.transaction,
       l.relation::int8 as relation,
       l.mode,
       l.relation::regclass::text as name,
       c.relowner::regrole::text as owner,
       c.oid is null and pg_table_is_visible(l.relation) is null as is_gone,
       exists (
           select
           from pg_roles as r
           cross join (values (l.relation), (pg_partition_root(l.relation)::oid)) as u (relation)
           where pg_has_role(session_user, r.oid, 'member')
           and (
               has_table_privilege(r.oid, u.relation, 'select, insert, update, delete, truncate')
               or has_any_column_privilege(r.oid, u.relation, 'select, insert, update')
           )
       ) as may_use
from used as l
left join pg_class as c on c.oid = l.relation
cross join lateral (
    select current_setting('transaction_isolation') in ('repeatable read', 'serializable') as is_old,
           c.relowner in (select t.oid from trusted as t) as is_own
) as s
where case
    when c.oid is null then pg_table_is_visible(l.relation) is not null or l.mode <> 'AccessExclusiveLock' and exists (
        select
        from pg_locks as r
        where r.pid = l.pid
        and r.locktype = 'object'
        and r.classid = 'pg_rewrite'::regclass
    )
    when c.relkind not in ('r', 'p', 'v', 'm', 'f') then false
    when (l.relation, l.is_written) in (select o.relation, o.is_written from others as o) then true
    when s.is_own then l.is_written
        and (s.is_old or exists (select from pg_trigger as g where g.tgrelid = c.oid and not g.tgisinternal))
        and exists (
            select
            from pg_roles as r
            where r.oid not in (select t.oid from trusted as t)
            and not pg_has_role(r.oid, c.relowner, 'usage')
            and has_table_privilege(r.oid, c.oid, 'trigger')
        )
    else l.is_written and (
            c.relnamespace <> pg_my_temp_schema()
            or c.relkind <> 'r'
            or c.relhastriggers
            or c.relhasrules
            or exists (select from pg_attribute as a where a.attrelid = c.oid and a.atthasdef)
        )
        or s.is_old and c.relnamespace <> pg_my_temp_schema()
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
        or exists (select from pg_cast as k where c.reltype <> 0 and k.castsource = c.reltype)
end
"""

# A table of the extension on which another role's code stands, or may at any time: a trigger runs as dbdp_owner.
_PLANTED = """
select c.oid::regclass::text as name
from pg_depend as d
join pg_class as c on c.oid = d.objid
where d.refclassid = 'pg_extension'::regclass
and d.refobjid = (select e.oid from pg_extension as e where e.extname = 'dbdp')
and d.classid = 'pg_class'::regclass
and (
    exists (
        select
        from pg_trigger as g
        where g.tgrelid = c.oid
        and not g.tgisinternal
        and g.tgfoid is distinct from to_regprocedure('dbdp_internal.identify()') -- which only superusers may use
    )
    or exists (
        select from aclexplode(c.relacl) as a where a.privilege_type = 'TRIGGER' and a.grantee <> c.relowner
    )
)
order by name
limit 1
"""


# Cursors with a name, loops of functions, portals of a driver. The statement that runs is one too, and nobody can fetch
# from it. The one without a name is the client's statement, and so it runs.
_OPEN = "select c.name from pg_catalog.pg_cursors as c where c.name not in ('', $1) order by c.name"


class OpenCursors:
    """The cursors that a caller has open: code of another role could read on from them.

    PostgreSQL checks rights where a cursor is opened, and not where it is read. Whoever knows its name, which every
    role may look up, gets its rows and moves it, as which role it may be.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._names: list[str] | None = None  # None outside of `noted`

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the open cursors for the block; calls within it have cursors of dbdp's too, which do not count."""
        before = self._names
        if before is None:
            self._names = [row["name"] for row in self._session.query(_OPEN, active_portal())]
        try:
            yield
        finally:
            self._names = before

    def check(self, source: str, owner: int | None) -> None:
        """Raise PermissionError if a table's owner, None for a superuser, is another role and a cursor is open."""
        if self._names and owner not in (None, backend().GetSessionUserId()):
            raise PermissionError(
                f"cursor {self._names[0]!r} is open in this session, and code of the owner of {source} could read from "
                "it; close it first (a FOR loop over a query has one: loop over an array)"
            )


class Transactions:
    """The locks of the current transaction that an interface took itself; owners' code has no rights under them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._taken: set[Lock] = set()

    def check(self) -> None:
        """Raise PermissionError if others' code may run in this transaction with the rights of its session.

        Proof. Code of a view, a rule, a trigger, a default, a generated column, a CHECK, a policy, an index, a
        statistic or a column's type runs in a statement that names its relation, or at the end of that statement's
        transaction. Until then the statement holds a lock on the relation, RowExclusiveLock or above where it writes,
        which outlives the relation. The server records a dependency on each type, function and operator that a
        definition names, however deep, except on its own objects. So the walk reaches the owner of all code that the
        use of a relation can run; what the body of a function calls is its owner's choice. So the query lists the lock
        on every relation that may have code of a role that is neither a superuser nor the session's user, and those of
        views that were read and dropped. Those that `note`
        recorded are excepted, an interface took them, which reads with the restricted rights of the relation's owner;
        but only where the session's roles have no right to use the relation, as then no other statement did.
        """
        for row in self._session.query(_PLANTED):
            raise PermissionError(
                f"a role other than its owner put a trigger on {row['name']}, or may, which would run with the rights "
                "of dbdp; ask the administrator to run `dbdp doctor`, which prints the SQL that ends it"
            )
        for row in self._foreign():
            if row["may_use"] or _lock(row) not in self._taken:
                raise PermissionError(_refusal(row))

    def note(self) -> None:
        """Record the locks that an interface took since the check."""
        self._taken = {_lock(row) for row in self._foreign()}

    def _foreign(self) -> list[Row]:
        return self._session.query(_FOREIGN)


def _lock(row: Row) -> Lock:
    return row["transaction"], row["relation"], row["mode"]


def _refusal(row: Row) -> str:
    """Return the message about a relation in which others' code may run."""
    if row["is_gone"]:
        used = "used a view and then dropped it"
    else:
        used = f"uses {row['name']} of role {row['owner'] or 'unknown'}"
    return (
        f"this transaction {used}, where code of another role (a view, a trigger, a rule, a default, a policy, an "
        "index, a type) could call dbdp with your privileges; call dbdp in a separate transaction"
    )


_OWNER = "select r.oid::pg_catalog.int8 as number from pg_catalog.pg_roles as r where r.rolname = 'dbdp_owner'"
_IN_FORCE = "select current_user::pg_catalog.text as code, session_user::pg_catalog.text as session"


def is_restricted() -> bool:
    """Return whether the caller is code of a table's owner, run while the server reads or maintains the table."""
    return identity()[1].value & ~LOCAL_USER != 0


def check_role(session: Session) -> None:
    """Raise PermissionError for code that runs with the rights of another role than the session's.

    Allowed are the role that logged in; the role of SET ROLE, outside SECURITY DEFINER functions, whose owner may
    be a group; and dbdp_owner, as which only an interface runs that has checked its own caller.
    """
    allowed = backend().GetSessionUserId(), dbdp_owner(session)
    if identity()[0].value not in allowed and not is_role_taken():
        row = session.query(_IN_FORCE)[0]
        raise PermissionError(
            f"dbdp was called by code that runs with the rights of {row['code']!r}, in a session of "
            f"{row['session']!r}; call it directly, as the role that logged in, and grant that role what it needs"
        )


def acts_as_owner(session: Session) -> bool:
    """Return whether the caller is an interface that acts as dbdp_owner."""
    return identity()[0].value == dbdp_owner(session)


def dbdp_owner(session: Session) -> int:
    """Return the number of the role dbdp_owner."""
    return int(session.query(_OWNER)[0]["number"])
