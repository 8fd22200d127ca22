"""The objects of the extension and the rights on them: those of a database, and the lists of this version.

The lists are files beside this one. A test compares them with a fresh installation, and renews them when they have
been read; `dbdp doctor` compares them with a database.
"""

from collections.abc import Callable
from pathlib import Path

Query = Callable[[str], list[tuple[str, ...]]]  # run one statement with the pinned settings of dbdp's connections

# Whatever belongs to a table without being a member, and what drops it.
_ATTACHED = """
select concat_ws(
         ', ',
         'policy ' || quote_ident(p.polname) || ' on ' || p.polrelid::regclass::text,
         case p.polcmd when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update' when 'd' then 'delete'
           else 'all'
         end,
         'to ' || coalesce(
           (select string_agg(r.rolname, ', ' order by r.rolname) from pg_roles as r where r.oid = any (p.polroles)),
           'public')),
       format('drop policy %I on %s;', p.polname, p.polrelid::regclass)
from pg_policy as p
join pg_class as c on c.oid = p.polrelid
where c.relnamespace in ('dbdp'::regnamespace, 'dbdp_internal'::regnamespace)
union all
select regexp_replace(pg_get_indexdef(i.indexrelid), '^create ', '', 'i'),
       format('drop index %s;', i.indexrelid::regclass)
from pg_index as i
join pg_class as c on c.oid = i.indrelid
where c.relnamespace in ('dbdp'::regnamespace, 'dbdp_internal'::regnamespace)
union all
select 'statistics ' || quote_ident(s.stxname) || ' on ' || c.oid::regclass::text,
       format('drop statistics %s.%I;', s.stxnamespace::regnamespace, s.stxname)
from pg_statistic_ext as s
join pg_class as c on c.oid = s.stxrelid
where c.relnamespace in ('dbdp'::regnamespace, 'dbdp_internal'::regnamespace)
union all
select 'publication ' || quote_ident(p.pubname) || ' of ' || c.oid::regclass::text,
       format('alter publication %I drop table %s;', p.pubname, c.oid::regclass)
from pg_publication_rel as r
join pg_publication as p on p.oid = r.prpubid
join pg_class as c on c.oid = r.prrelid
where c.relnamespace in ('dbdp'::regnamespace, 'dbdp_internal'::regnamespace)
union all
select 'publication ' || quote_ident(p.pubname) || ' of schema ' || r.pnnspid::regnamespace::text,
       format('alter publication %I drop tables in schema %s;', p.pubname, r.pnnspid::regnamespace)
from pg_publication_namespace as r
join pg_publication as p on p.oid = r.pnpubid
where r.pnnspid in ('dbdp'::regnamespace, 'dbdp_internal'::regnamespace)
"""
# The odometers of datasets and allowances come and go, and are no members of the extension.
_OBJECTS = """
select 'schema ' || n.nspname || ', owner ' || coalesce(
    (select 'superuser' from pg_roles as r where r.oid = n.nspowner and r.rolsuper), n.nspowner::regrole::text)
from pg_namespace as n
where n.nspname in ('dbdp', 'dbdp_internal')
union all
select concat_ws(
  ', ',
  case p.prokind when 'a' then 'aggregate' else 'function' end || ' ' || p.oid::regprocedure::text
    || ' returns ' || case when p.proretset then 'setof ' else '' end || format_type(p.prorettype, null),
  'owner ' || coalesce(
    (select 'superuser' from pg_roles as r where r.oid = p.proowner and r.rolsuper), p.proowner::regrole::text),
  l.lanname,
  case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
  case p.proparallel when 's' then 'parallel safe' when 'r' then 'parallel restricted' else 'parallel unsafe' end,
  case when p.proisstrict then 'strict' end,
  case when p.prosecdef then 'security definer' end,
  array_to_string(p.proconfig, ', '))
from pg_proc as p
join pg_language as l on l.oid = p.prolang
where p.pronamespace in ('dbdp'::regnamespace, 'dbdp_internal'::regnamespace)
and p.proname not like 'former\\_%' -- which sql/upgrade/after.sql keeps for objects of users
union all
select concat_ws(
  ', ',
  case c.relkind when 'r' then 'table' when 'v' then 'view' when 'S' then 'sequence' else c.relkind::text end
    || ' ' || c.oid::regclass::text,
  'owner ' || coalesce(
    (select 'superuser' from pg_roles as r where r.oid = c.relowner and r.rolsuper), c.relowner::regrole::text),
  case when c.relrowsecurity then 'row-level security' end,
  array_to_string(c.reloptions, ', '),
  case when exists (select from pg_extension where c.oid = any (extconfig)) then 'dumped' end)
from pg_class as c
where exists (
  select
  from pg_depend as d
  join pg_extension as e on e.oid = d.refobjid
  where d.classid = 'pg_class'::regclass
  and d.objid = c.oid
  and d.refclassid = 'pg_extension'::regclass
  and e.extname = 'dbdp')
union all
select distinct 'role ' || m.member::regrole::text || ', member of ' || m.roleid::regrole::text
from pg_auth_members as m
where 2 = (
  select count(*)
  from pg_roles as r
  where r.oid in (m.member, m.roleid)
  and r.rolname in ('dbdp_owner', 'dbdp_predictor', 'dbdp_analyst', 'dbdp_data_owner'))
"""
_RIGHTS = """
select r.grantee, concat_ws(' ', r.privilege, '(' || r.part || ')', 'on', r.object,
  case when r.is_grantable then 'with grant option' end)
from dbdp_internal.rights as r
where r.object not like 'routine dbdp\\_internal.former\\_%'
"""


def objects(query: Query) -> list[str]:
    """Return a line for each object of the extension in a database."""
    return sorted([*(line for (line,) in query(_OBJECTS)), *(line for line, _ in query(_ATTACHED))])


def rights(query: Query) -> list[str]:
    """Return a line for each right on an object of the extension that another role than its owner has."""
    return sorted(f"{grantee}: {right}" for grantee, right in query(_RIGHTS))


def intended(name: str) -> list[str]:
    """Return the list of this version: of `objects`, or of `rights`."""
    return Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines()


def foreign(query: Query) -> dict[str, str]:
    """Return rights, policies and the like that are not in the lists, each with the SQL that removes it."""
    kept = {name: set(intended(name)) for name in ("objects", "rights")}
    found = {line: remedy for line, remedy in query(_ATTACHED) if line not in kept["objects"]}
    for grantee, right in query(_RIGHTS):
        if f"{grantee}: {right}" not in kept["rights"]:
            found[f"{grantee}: {right}"] = f"revoke {right.removesuffix(' with grant option')} from {grantee} cascade;"
    return found


def missing(query: Query) -> list[str]:
    """Return the rights, policies and indexes in the lists that a database lacks."""
    found = {*rights(query), *(line for line, _ in query(_ATTACHED))}
    attached = (line for line in intended("objects") if line.startswith(("policy ", "INDEX ", "UNIQUE ")))
    return sorted({*intended("rights"), *attached} - found)
