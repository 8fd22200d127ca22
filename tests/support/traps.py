"""Traps: objects in a schema, named like the server's own, each of which reports that it was run, and by which role.

Whoever lets names be looked up along a path on which such a schema stands runs its owner's code. Before pg_catalog,
copies of the server's own are met; behind it, as where `pg_catalog` is not written, what fits better: operators for
pairs of types that the server has no operator for.
"""

import re

import psycopg

# A sequence counts, since no rollback undoes it; the error says what was met.
TRIP = """
create schema if not exists alarm;
grant usage on schema alarm to public;
create sequence if not exists alarm.met;
grant usage on sequence alarm.met to public;
create or replace function alarm.trip(what pg_catalog.text) returns pg_catalog.bool language plpgsql
set search_path = pg_catalog as $$
begin
  perform nextval('alarm.met');
  raise exception 'trap: % was met by %', what, current_user;
end $$;
"""

COPIES = """
do $do$
declare
  each record;
  planted int := 0;
begin
  perform set_config('check_function_bodies', 'off', true);
  for each in
    select p.oid, p.proname, pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result
    from pg_proc as p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f'
  loop
    begin
      execute format($f$create function {schema}.%%I(%%s) returns %%s language plpgsql as
        'begin perform alarm.trip(''function %%s''); end'$f$,
        each.proname, each.arguments, each.result, replace(each.proname, '''', ''));
    exception when others then null;
    end;
  end loop;
  for each in
    select p.proname, pg_get_function_identity_arguments(p.oid) as arguments, p.oid
    from pg_proc as p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'a'
  loop
    begin
      execute format($f$create function {schema}.step(int8%%s) returns int8 language plpgsql as
        'begin perform alarm.trip(''an aggregate''); end'$f$,
        case when each.arguments in ('', '*') then '' else ', ' || each.arguments end);
    exception when others then null;
    end;
    begin
      execute format('create aggregate {schema}.%%I(%%s) (sfunc = {schema}.step, stype = int8, initcond = 0)',
        each.proname, case each.arguments when '' then '*' else each.arguments end);
    exception when others then null;
    end;
  end loop;
  for each in
    select o.oid, o.oprname, format_type(o.oprleft, null) as l, format_type(o.oprright, null) as r, o.oprleft,
           format_type(o.oprresult, null) as result
    from pg_operator as o where o.oprnamespace = 'pg_catalog'::regnamespace
  loop
    begin
      execute format($f$create function {schema}.o%%s(%%s%%s) returns %%s language plpgsql as
        'begin perform alarm.trip(''operator %%s''); end'$f$,
        each.oid, case when each.oprleft = 0 then '' else each.l || ', ' end, each.r, each.result, each.oprname);
      execute format('create operator {schema}.%%s (%%srightarg = %%s, function = {schema}.o%%s)',
        each.oprname, case when each.oprleft = 0 then '' else 'leftarg = ' || each.l || ', ' end, each.r, each.oid);
    exception when others then null;
    end;
  end loop;
  for each in
    select t.typname from pg_type as t
    where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype = 'b' and t.typelem = 0
  loop
    begin
      execute format('create domain {schema}.%%I as pg_catalog.text check (alarm.trip(%%L))',
        each.typname, 'type ' || each.typname);
    exception when others then null;
    end;
  end loop;
  for each in
    select c.relname from pg_class as c
    where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind in ('r', 'v')
  loop
    begin
      execute format('create view {schema}.%%I as select c.* from pg_catalog.%%I as c where alarm.trip(%%L)',
        each.relname, each.relname, 'relation ' || each.relname);
      execute format('grant select on {schema}.%%I to public', each.relname);
    exception when others then null;
    end;
  end loop;
end $do$;
"""
# Of functions that take anything, for which PL/pgSQL has no type.
ANYTHING = """
create function {schema}.format(text, variadic text[]) returns text language plpgsql as
  'begin perform alarm.trip(''function format''); end';
create function {schema}.format(text, name, name) returns text language plpgsql as
  'begin perform alarm.trip(''function format''); end';
create function {schema}.concat(variadic text[]) returns text language plpgsql as
  'begin perform alarm.trip(''function concat''); end';
create function {schema}.concat_ws(text, variadic text[]) returns text language plpgsql as
  'begin perform alarm.trip(''function concat_ws''); end';
"""
TYPES = ["text", "name", "oid", "int2", "int4", "int8", "numeric", "float8", "bool", "json", "timestamptz", "pg_lsn"]
TYPES += ["regclass", "regrole", "regnamespace", "regproc", "xid"]
COMPARED = ("=", "<>", "<", "<=", ">", ">=", "||", "+", "-", "~", "~~")
PAIRS = """
do $do$
declare
  l text;
  r text;
  sign text;
begin
  foreach l in array %(types)s::text[] loop
    foreach r in array %(types)s::text[] loop
      begin
        execute format($f$create function {schema}.pair(%%s, %%s) returns bool language plpgsql as
          'begin perform alarm.trip(''operator of %%s and %%s''); end'$f$, l, r, l, r);
        foreach sign in array %(signs)s::text[] loop
          execute format('create operator {schema}.%%s (leftarg = %%s, rightarg = %%s, function = {schema}.pair)',
            sign, l, r);
        end loop;
      exception when others then null;
      end;
    end loop;
  end loop;
end $do$;
"""


def _script(text: str, schema: str) -> str:
    return text.replace("{schema}", psycopg.sql.Identifier(schema).as_string()).replace("%%", "%")


def plant(admin: psycopg.Connection, schema: str, *, copies: bool) -> None:
    """Plant traps in a schema: copies of all that the server has, or operators for pairs of types."""
    with admin.transaction():
        admin.execute("set local search_path = pg_catalog")
        admin.execute(TRIP)
        admin.execute(_script("create schema if not exists {schema}; grant usage on schema {schema} to public", schema))
        if copies:
            admin.execute(_script(COPIES, schema))
            admin.execute(_script(ANYTHING, schema))
            return
        options = {"types": psycopg.sql.Literal(TYPES), "signs": psycopg.sql.Literal(list(COMPARED))}
        text = _script(PAIRS, schema)
        for name, literal in options.items():
            text = text.replace(f"%({name})s", literal.as_string())
        admin.execute(text)


def met(admin: psycopg.Connection) -> int:
    """How many traps were met."""
    ((number, is_called),) = admin.execute("select last_value, is_called from alarm.met").fetchall()
    return number if is_called else 0


def names_in(statement: str) -> tuple[set[str], set[str]]:
    """Return the functions and the operators that a statement names without a schema, as far as its text shows."""
    bare = re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*", " ", statement)
    functions = set(re.findall(r"(?<![\w.])([a-z_][a-z_0-9]*)\s*\(", bare))
    operators = set(re.findall(r"(?<![-+*/<>=~!@#%^&|])([-+*/<>=~!@#%^&|]+)(?![-+*/<>=~!@#%^&|])", bare))
    return functions, operators
