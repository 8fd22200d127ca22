"""Every object of the extension, and every right of a role on it, as a reviewer last read them.

A difference is a decision: read it, then renew the files by DBDP_RENEW_GOLDEN=1 pytest tests/deployment/test_golden.py.
"""

import os
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import psycopg
import pytest

GOLDEN = Path(__file__).parent / "golden"
RENEW = "DBDP_RENEW_GOLDEN"
ROLES = ("public", "dbdp_predictor", "dbdp_analyst", "dbdp_data_owner", "dbdp_owner", "pg_read_all_stats")

# The odometers of datasets and allowances come and go, and are no members of the extension.
MEMBERS = """
select d.objid
from pg_depend as d
where d.refclassid = 'pg_extension'::regclass
and d.refobjid = (select oid from pg_extension where extname = 'dbdp')
and d.deptype = 'e'
"""
OWNER = "case when (select rolsuper from pg_roles where oid = {0}) then 'superuser' else {0}::regrole::text end"
OBJECTS = f"""
select 'schema ' || n.nspname || ', owner ' || {OWNER.format("n.nspowner")}
from pg_namespace as n
where n.nspname in ('dbdp', 'dbdp_internal')
union all
select concat_ws(
  ', ',
  case p.prokind when 'a' then 'aggregate' else 'function' end || ' ' || p.oid::regprocedure::text
    || ' returns ' || case when p.proretset then 'setof ' else '' end || format_type(p.prorettype, null),
  'owner ' || {OWNER.format("p.proowner")},
  l.lanname,
  case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
  case p.proparallel when 's' then 'parallel safe' when 'r' then 'parallel restricted' else 'parallel unsafe' end,
  case when p.proisstrict then 'strict' end,
  case when p.prosecdef then 'security definer' end,
  array_to_string(p.proconfig, ', '))
from pg_proc as p
join pg_language as l on l.oid = p.prolang
where p.oid in ({MEMBERS} and d.classid = 'pg_proc'::regclass)
union all
select concat_ws(
  ', ',
  case c.relkind when 'r' then 'table' when 'v' then 'view' when 'S' then 'sequence' else c.relkind::text end
    || ' ' || c.oid::regclass::text,
  'owner ' || {OWNER.format("c.relowner")},
  case when c.relrowsecurity then 'row-level security' end,
  array_to_string(c.reloptions, ', '),
  case when exists (select from pg_extension where c.oid = any (extconfig)) then 'dumped' end)
from pg_class as c
where c.oid in ({MEMBERS} and d.classid = 'pg_class'::regclass)
union all
select concat_ws(
  ', ',
  'policy ' || p.polname || ' on ' || p.polrelid::regclass::text,
  case p.polcmd when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update' when 'd' then 'delete' else 'all'
  end,
  'to ' || coalesce((select string_agg(r.rolname, ', ') from pg_roles as r where r.oid = any (p.polroles)), 'public'))
from pg_policy as p
where p.polrelid in ({MEMBERS} and d.classid = 'pg_class'::regclass)
"""
FUNCTIONS = f"""
select r.role, 'execute function ' || p.oid::regprocedure::text
from pg_proc as p, unnest(%(roles)s::text[]) as r(role)
where p.oid in ({MEMBERS} and d.classid = 'pg_proc'::regclass)
and has_function_privilege(r.role, p.oid, 'execute')
"""
# By name: later servers have privileges more, which none of ours asks for.
TABLES = f"""
select r.role, w.word || case c.relkind when 'v' then ' view ' else ' table ' end || c.oid::regclass::text
from pg_class as c, unnest(%(roles)s::text[]) as r(role),
     unnest('{{select,insert,update,delete,truncate,references,trigger}}'::text[]) as w(word)
where c.oid in ({MEMBERS} and d.classid = 'pg_class'::regclass)
and c.relkind in ('r', 'v')
and has_table_privilege(r.role, c.oid, w.word)
"""
COLUMNS = f"""
select r.role, w.word || ' column ' || c.oid::regclass::text || '.' || a.attname
from pg_class as c
join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped,
     unnest(%(roles)s::text[]) as r(role), unnest('{{select,insert,update,references}}'::text[]) as w(word)
where c.oid in ({MEMBERS} and d.classid = 'pg_class'::regclass)
and c.relkind in ('r', 'v')
and has_column_privilege(r.role, c.oid, a.attnum, w.word)
and not has_table_privilege(r.role, c.oid, w.word)
"""
SEQUENCES = f"""
select r.role, w.word || ' sequence ' || c.oid::regclass::text
from pg_class as c, unnest(%(roles)s::text[]) as r(role), unnest('{{select,update,usage}}'::text[]) as w(word)
where c.oid in ({MEMBERS} and d.classid = 'pg_class'::regclass)
and c.relkind = 'S'
and has_sequence_privilege(r.role, c.oid, w.word)
"""
SCHEMA = """
select r.role, w.word || ' schema ' || n.name
from unnest(%(roles)s::text[]) as r(role), unnest('{usage,create}'::text[]) as w(word),
     unnest('{dbdp,dbdp_internal}'::text[]) as n(name)
where has_schema_privilege(r.role, n.name, w.word)
"""
PRIVILEGES = " union all ".join((FUNCTIONS, TABLES, COLUMNS, SEQUENCES, SCHEMA))


@pytest.fixture
def plain(connection: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A session in which every name is written with its schema."""
    connection.execute("set search_path = pg_catalog")
    yield connection


def objects(connection: psycopg.Connection) -> list[str]:
    return sorted(line for (line,) in connection.execute(OBJECTS.encode()).fetchall())


def privileges(connection: psycopg.Connection) -> list[str]:
    """A role's own rights: those of a role of which it is a member are listed with that role only."""
    rows = connection.execute(PRIVILEGES.encode(), {"roles": list(ROLES)}).fetchall()
    members = connection.execute(
        "select m.role, g.role from unnest(%(roles)s::text[]) as m(role), unnest(%(roles)s::text[]) as g(role) "
        "where m.role <> g.role and 'public' not in (m.role, g.role) "
        "and pg_has_role(m.role, g.role, 'usage')",
        {"roles": list(ROLES)},
    ).fetchall()
    above: dict[str, set[str]] = {role: {"public"} - {role} for role in ROLES}
    for member, group in members:
        above[member].add(group)
    has = set(rows)
    own = [(role, right) for role, right in rows if not any((group, right) in has for group in above[role])]
    return sorted([f"{role}: {right}" for role, right in own] + [f"{m}: member of {g}" for m, g in members])


@pytest.mark.parametrize("what", [objects, privileges])
def test_the_catalogue_is_as_it_was_last_read(plain, what):
    path, found = GOLDEN / f"{what.__name__}.txt", what(plain)
    if os.environ.get(RENEW):
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(found) + "\n")
    kept = path.read_text().splitlines()
    difference = "\n".join(unified_diff(kept, found, f"{path.name} as kept", "the database", lineterm="", n=0))
    assert not difference, f"{difference}\nread it; if it is right, renew the files: {RENEW}=1 pytest {__file__}"


CHANGES = {
    "alter function dbdp.dp_explain volatile parallel safe": "dbdp.dp_explain(text",
    "alter function dbdp.dp_train security definer": "dbdp.dp_train(text",
    "alter function dbdp_internal.charge reset all": "dbdp_internal.charge(text",
    "alter table dbdp.ledger owner to dbdp_owner": "table dbdp.ledger, owner dbdp_owner",
    "alter table dbdp.model disable row level security": "table dbdp.model",
    "drop policy visible on dbdp.model": "policy visible on dbdp.model",
    "alter view dbdp.models reset (security_invoker)": "view dbdp.models",
    "grant select (declaration) on dbdp.model to public": "public: select column dbdp.model.declaration",
    "grant delete on dbdp.ledger to dbdp_data_owner": "dbdp_data_owner: delete table dbdp.ledger",
    "grant execute on function dbdp_internal.shuffle to dbdp_analyst": "dbdp_analyst: execute function dbdp_internal",
    "revoke execute on function dbdp.dp_train from dbdp_analyst": "dbdp_analyst: execute function dbdp.dp_train",
    "grant usage on sequence dbdp.ledger_id_seq to dbdp_predictor": "dbdp_predictor: usage sequence dbdp.ledger_id_seq",
    "grant create on schema dbdp to dbdp_analyst": "dbdp_analyst: create schema dbdp",
    "grant create on schema dbdp_internal to dbdp_owner": "dbdp_owner: create schema dbdp_internal",
    "alter schema dbdp_internal owner to dbdp_owner": "schema dbdp_internal, owner dbdp_owner",
    "grant dbdp_owner to dbdp_data_owner": "dbdp_data_owner: member of dbdp_owner",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_would_be_seen(plain, change):
    def everything() -> set[str]:
        return {*objects(plain), *privileges(plain)}

    before = everything()
    with plain.transaction(force_rollback=True):
        plain.execute(change.encode())
        changed = before ^ everything()
    assert any(CHANGES[change] in line for line in changed)
    assert everything() == before
