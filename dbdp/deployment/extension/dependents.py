"""Objects outside the extension that use what an update replaces."""

import psycopg

# Views, defaults, functions and constraints that use functions or views of dbdp: name, owner, and what drops each.
_DEPENDENTS = """
with used as (
  select d.classid, d.objid
  from pg_depend as d
  left join pg_proc as p on d.refclassid = 'pg_proc'::regclass and p.oid = d.refobjid
  left join pg_class as c on d.refclassid = 'pg_class'::regclass and c.oid = d.refobjid
  where coalesce(p.pronamespace, c.relnamespace) in (to_regnamespace('dbdp'), to_regnamespace('dbdp_internal'))
)
select pg_describe_object('pg_class'::regclass, c.oid, 0),
       c.relowner::regrole::text,
       format('drop %s %s cascade;', case c.relkind when 'm' then 'materialized view' else 'view' end, c.oid::regclass)
from used as u
join pg_rewrite as r on u.classid = 'pg_rewrite'::regclass and r.oid = u.objid
join pg_class as c on c.oid = r.ev_class
union
select pg_describe_object(u.classid, a.oid, 0),
       c.relowner::regrole::text,
       format('alter table %s alter column %I drop default;', c.oid::regclass, t.attname)
from used as u
join pg_attrdef as a on u.classid = 'pg_attrdef'::regclass and a.oid = u.objid
join pg_class as c on c.oid = a.adrelid
join pg_attribute as t on t.attrelid = c.oid and t.attnum = a.adnum
union
select pg_describe_object(u.classid, p.oid, 0),
       p.proowner::regrole::text,
       format('drop routine %s;', p.oid::regprocedure)
from used as u
join pg_proc as p on u.classid = 'pg_proc'::regclass and p.oid = u.objid
union
select pg_describe_object(u.classid, k.oid, 0),
       c.relowner::regrole::text,
       format('alter table %s drop constraint %I;', c.oid::regclass, k.conname)
from used as u
join pg_constraint as k on u.classid = 'pg_constraint'::regclass and k.oid = u.objid
join pg_class as c on c.oid = k.conrelid
order by 1
"""


def used_by_others(connection: psycopg.Connection, detail: str) -> str:
    """Return the message about objects that use what an update drops: the server's detail, with owners and a remedy."""
    found = [row for row in connection.execute(_DEPENDENTS).fetchall() if row[0] in detail]
    if not found:
        return f"objects of others use what this version replaces: {detail}; drop them and install again"
    names = ", ".join(f"{what} of {owner}" for what, owner, _ in found)
    return (
        f"the update replaces functions that others use: {names}; save the definitions with pg_dump --schema-only, run "
        f"`{' '.join(remedy for *_, remedy in found)}`, install again, and create them again"
    )
