"""Objects outside the extension that use what an update replaces: an update keeps them, or is refused and names them."""

from typing import NamedTuple

import psycopg

from dbdp.deployment import inventory

_OBJECTS = """
with used as (
  select d.classid, d.objid, d.refclassid, d.refobjid
  from pg_depend as d
  left join pg_proc as p on d.refclassid = 'pg_proc'::regclass and p.oid = d.refobjid
  left join pg_class as c on d.refclassid = 'pg_class'::regclass and c.oid = d.refobjid
  where coalesce(p.pronamespace, c.relnamespace) in (to_regnamespace('dbdp'), to_regnamespace('dbdp_internal'))
  and not exists (
    select
    from pg_depend as m
    join pg_extension as e on e.oid = m.refobjid
    where (m.classid, m.objid, m.refclassid) = (d.classid, d.objid, 'pg_extension'::regclass)
    and m.deptype = 'e'
    and e.extname = 'dbdp')
), objects as (
  select u, 'pg_class'::regclass as class, c.oid as object, c.relowner as owner,
         format('drop %s %s cascade;', case c.relkind when 'm' then 'materialized view' else 'view' end, c.oid::regclass)
           as remedy
  from used as u
  join pg_rewrite as r on u.classid = 'pg_rewrite'::regclass and r.oid = u.objid
  join pg_class as c on c.oid = r.ev_class
  where r.rulename = '_RETURN'
  union all
  select u, u.classid, r.oid, c.relowner, format('drop rule %I on %s;', r.rulename, c.oid::regclass)
  from used as u
  join pg_rewrite as r on u.classid = 'pg_rewrite'::regclass and r.oid = u.objid
  join pg_class as c on c.oid = r.ev_class
  where r.rulename <> '_RETURN'
  union all
  select u, u.classid, a.oid, c.relowner,
         format('alter table %s alter column %I drop default;', c.oid::regclass, t.attname)
  from used as u
  join pg_attrdef as a on u.classid = 'pg_attrdef'::regclass and a.oid = u.objid
  join pg_class as c on c.oid = a.adrelid
  join pg_attribute as t on t.attrelid = c.oid and t.attnum = a.adnum
  union all
  select u, u.classid, p.oid, p.proowner, format('drop routine %s;', p.oid::regprocedure)
  from used as u
  join pg_proc as p on u.classid = 'pg_proc'::regclass and p.oid = u.objid
  where p.pronamespace not in (to_regnamespace('dbdp'), coalesce(to_regnamespace('dbdp_internal'), 0::oid))
  union all
  select u, u.classid, k.oid, coalesce(c.relowner, t.typowner),
         format('alter %s drop constraint %I;', coalesce('table ' || c.oid::regclass, 'domain ' || t.oid::regtype), k.conname)
  from used as u
  join pg_constraint as k on u.classid = 'pg_constraint'::regclass and k.oid = u.objid
  left join pg_class as c on c.oid = k.conrelid
  left join pg_type as t on t.oid = k.contypid
  union all
  select u, u.classid, t.oid, t.typowner, format('alter domain %s drop default;', t.oid::regtype)
  from used as u
  join pg_type as t on u.classid = 'pg_type'::regclass and t.oid = u.objid and t.typtype = 'd'
  union all
  select u, u.classid, p.oid, c.relowner, format('drop policy %I on %s;', p.polname, c.oid::regclass)
  from used as u
  join pg_policy as p on u.classid = 'pg_policy'::regclass and p.oid = u.objid
  join pg_class as c on c.oid = p.polrelid
  where c.relnamespace <> to_regnamespace('dbdp')
  union all
  select u, u.classid, t.oid, c.relowner, format('drop trigger %I on %s;', t.tgname, c.oid::regclass)
  from used as u
  join pg_trigger as t on u.classid = 'pg_trigger'::regclass and t.oid = u.objid
  join pg_class as c on c.oid = t.tgrelid
  where c.relnamespace <> to_regnamespace('dbdp')
)
select pg_describe_object(o.class, o.object, 0) as name,
       o.owner::regrole::text,
       o.remedy,
       coalesce(array_agg(distinct (o.u).refobjid::regprocedure::text)
         filter (where (o.u).refclassid = 'pg_proc'::regclass), '{}') as functions
from objects as o
where o.object not in (select e.oid from pg_class as e where e.relnamespace = to_regnamespace('dbdp'))
group by o.class, o.object, o.owner, o.remedy
order by 1
"""


class Dependent(NamedTuple):
    """An object outside the extension that uses functions or views of it."""

    name: str
    owner: str
    remedy: str  # SQL that drops it
    functions: list[str]  # of the extension that it calls

    def __str__(self) -> str:
        return f"{self.name} of {self.owner}"


def _dependents(connection: psycopg.Connection) -> list[Dependent]:
    return [Dependent(*row) for row in connection.execute(_OBJECTS).fetchall()]


def replaced_calls(connection: psycopg.Connection) -> list[str]:
    """Return a sentence for each object of a user that calls a function with other parameters in this version."""
    lines = (line for line in inventory.intended("objects") if line.startswith("function "))
    present = {line.split(maxsplit=1)[1].partition(" returns ")[0].partition(".")[2] for line in lines}
    found = []
    for each in _dependents(connection):
        replaced = {call.partition("(")[0] for call in each.functions if not _is_in(present, call)}
        if replaced:
            calls = " and ".join(sorted(replaced))
            found.append(f"{each}: its call of {calls} keeps the former parameters, or the update is refused")
    return found


def _is_in(present: set[str], function: str) -> bool:
    """Return whether this version has a function, in either schema, or keeps it already."""
    name = function.partition(".")[2]
    return name in present or name.startswith("former_")


def used_by_others(connection: psycopg.Connection, reason: str, detail: str) -> str:
    """Return the message about objects that use what an update drops: the server's detail, with owners and a remedy."""
    lines = detail.splitlines()
    found = [each for each in _dependents(connection) if any(line.startswith(f"{each.name} ") for line in lines)]
    if not found:
        return f"objects of others use what this version replaces: {detail}; drop them and install again"
    return (
        f"others use what this version cannot keep: {', '.join(map(str, found))} ({reason}); save the definitions with "
        f"pg_dump --schema-only, run `{' '.join(each.remedy for each in found)}`, install again, and create them again"
    )
