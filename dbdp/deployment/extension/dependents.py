"""Objects outside the extension that use what an update replaces: it keeps them, or is refused and names them."""

from typing import NamedTuple

import psycopg

from dbdp.deployment import inventory

# Each has its name for the server, its owner, the SQL that drops it, and the functions of the extension that it calls.
_OBJECTS = """
with own as (
  select n.oid from pg_namespace as n where n.nspname in ('dbdp', 'dbdp_internal')
), used as (
  select d.classid, d.objid, d.refclassid, d.refobjid
  from pg_depend as d
  left join pg_proc as p on d.refclassid = 'pg_proc'::regclass and p.oid = d.refobjid
  left join pg_class as c on d.refclassid = 'pg_class'::regclass and c.oid = d.refobjid
  where coalesce(p.pronamespace, c.relnamespace) in (select oid from own)
), of_relations as ( -- the SQL that drops each, before and after the name of its relation; views have other words
  select 'pg_class'::regclass as class, r.ev_class as object, r.ev_class as relation, null as before,
         ' cascade' as after
  from used as u
  join pg_rewrite as r on u.classid = 'pg_rewrite'::regclass and r.oid = u.objid
  where r.rulename = '_RETURN'
  union
  select u.classid, r.oid, r.ev_class, format('drop rule %I on ', r.rulename), ''
  from used as u
  join pg_rewrite as r on u.classid = 'pg_rewrite'::regclass and r.oid = u.objid
  where r.rulename <> '_RETURN'
  union
  select u.classid, a.oid, a.adrelid, 'alter table ', format(' alter column %I drop default', t.attname)
  from used as u
  join pg_attrdef as a on u.classid = 'pg_attrdef'::regclass and a.oid = u.objid
  join pg_attribute as t on t.attrelid = a.adrelid and t.attnum = a.adnum
  union
  select u.classid, k.oid, k.conrelid, 'alter table ', format(' drop constraint %I', k.conname)
  from used as u
  join pg_constraint as k on u.classid = 'pg_constraint'::regclass and k.oid = u.objid
  union
  select u.classid, p.oid, p.polrelid, format('drop policy %I on ', p.polname), ''
  from used as u
  join pg_policy as p on u.classid = 'pg_policy'::regclass and p.oid = u.objid
  union
  select u.classid, t.oid, t.tgrelid, format('drop trigger %I on ', t.tgname), ''
  from used as u
  join pg_trigger as t on u.classid = 'pg_trigger'::regclass and t.oid = u.objid
), objects as (
  select o.class, o.object, c.relowner as owner,
         concat(
           coalesce(o.before, case c.relkind when 'm' then 'drop materialized view ' else 'drop view ' end),
           c.oid::regclass, o.after, ';') as remedy
  from of_relations as o
  join pg_class as c on c.oid = o.relation
  where c.relnamespace not in (select oid from own)
  union all
  select u.classid, p.oid, p.proowner, format('drop routine %s;', p.oid::regprocedure)
  from used as u
  join pg_proc as p on u.classid = 'pg_proc'::regclass and p.oid = u.objid
  where p.pronamespace not in (select oid from own)
  union all
  select u.classid, t.oid, t.typowner, format('alter domain %s drop default;', t.oid::regtype)
  from used as u
  join pg_type as t on u.classid = 'pg_type'::regclass and t.oid = u.objid and t.typtype = 'd'
  union all
  select u.classid, k.oid, t.typowner, format('alter domain %s drop constraint %I;', t.oid::regtype, k.conname)
  from used as u
  join pg_constraint as k on u.classid = 'pg_constraint'::regclass and k.oid = u.objid
  join pg_type as t on t.oid = k.contypid
)
select distinct pg_describe_object(o.class, o.object, 0) as name,
       o.owner::regrole::text,
       o.remedy,
       array(
         select distinct u.refobjid::regprocedure::text
         from used as u
         left join pg_rewrite as r on u.classid = 'pg_rewrite'::regclass and r.oid = u.objid
         where u.refclassid = 'pg_proc'::regclass
         and ((u.classid, u.objid) = (o.class, o.object) or (o.class, o.object) = ('pg_class'::regclass, r.ev_class)))
from objects as o
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
