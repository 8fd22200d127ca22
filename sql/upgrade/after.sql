-- After each update: a retired function is dropped, also one that an earlier update kept. If an object of a user depends on it,
-- it stays as dbdp_internal.former_NAME and calls dbdp.NAME with the parameters that it had, by their names. The object itself
-- is not made again: none of its code runs in an update, and its owner, rights and rows stay. The function leaves the
-- extension, so that a dump has it. Whoever may call dbdp.NAME may call it.

create function dbdp_internal.parameters_of(routine regprocedure)
returns table (place bigint, name text, type oid, is_result boolean, value text)
language sql
as $body$
select a.place,
       p.proargnames[a.place],
       a.type,
       coalesce(p.proargmodes[a.place], 'i') in ('o', 't'),
       pg_catalog.pg_get_function_arg_default(p.oid, a.place::int)
from pg_catalog.pg_proc as p
cross join lateral pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) with ordinality as a (type, place)
where p.oid = routine
$body$;

-- The function that has all parameters and results of a retired one, and no other parameter that a call must have.
create function dbdp_internal.replacement_of(former regprocedure) returns regprocedure
language sql
as $body$
select n.oid
from pg_catalog.pg_proc as o
join pg_catalog.pg_proc as n
  on n.pronamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
  and n.proname = pg_catalog.substr(o.proname::text, 8) -- without former_
  and (n.prokind, n.proretset, n.prorettype) = (o.prokind, o.proretset, o.prorettype)
where o.oid = former
and o.prokind = 'f'
and not exists (
  select p.name, p.type, p.is_result from dbdp_internal.parameters_of(o.oid) as p
  except
  select p.name, p.type, p.is_result from dbdp_internal.parameters_of(n.oid) as p
)
and not exists (
  select p.name from dbdp_internal.parameters_of(n.oid) as p where not p.is_result and p.value is null
  except
  select p.name from dbdp_internal.parameters_of(o.oid) as p
)
order by n.pronargs
limit 1
$body$;

-- The statement that makes a retired function call its replacement. Defaults are those of the replacement.
create function dbdp_internal.call_of(former regprocedure, replacement regprocedure) returns text
language sql
as $body$
select pg_catalog.format(
         'create or replace function %s.%I(%s) returns %s language sql %s parallel %s '
         'set search_path = pg_catalog, pg_temp as %L',
         o.pronamespace::pg_catalog.regnamespace, o.proname, declared.parameters,
         case when o.proretset then 'setof ' else '' end || pg_catalog.format_type(o.prorettype, null),
         case n.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
         case n.proparallel when 's' then 'safe' when 'r' then 'restricted' else 'unsafe' end,
         pg_catalog.format(
           'select %s from %s.%I(%s) as answer', coalesce(declared.results, 'answer.*'),
           n.pronamespace::pg_catalog.regnamespace, n.proname, declared.passed))
from pg_catalog.pg_proc as o
join pg_catalog.pg_proc as n on n.oid = replacement
cross join lateral (
  select pg_catalog.string_agg(
           pg_catalog.concat_ws(
             ' ', case when p.is_result then 'out' end, pg_catalog.quote_ident(p.name),
             pg_catalog.format_type(p.type, null), 'default ' || coalesce(q.value, p.value)),
           ', ' order by p.place) as parameters,
         pg_catalog.string_agg(pg_catalog.format('%I => $%s', p.name, p.place), ', ' order by p.place)
           filter (where not p.is_result) as passed,
         pg_catalog.string_agg(pg_catalog.format('answer.%I', p.name), ', ' order by p.place)
           filter (where p.is_result) as results
  from dbdp_internal.parameters_of(o.oid) as p
  join dbdp_internal.parameters_of(n.oid) as q on (q.name, q.is_result) = (p.name, p.is_result)
) as declared
where o.oid = former
$body$;

create function dbdp_internal.keep(former regprocedure, replacement regprocedure) returns void
language plpgsql
as $body$
begin
  if not exists (
    select from pg_catalog.pg_depend as d
    where d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.objid = former and d.deptype = 'e'
  ) then
    execute pg_catalog.format('alter extension dbdp add function %s', former); -- a script replaces functions of its extension only
  end if;
  execute dbdp_internal.call_of(former, replacement);
  execute pg_catalog.format('alter function %s owner to current_user', former);
  execute pg_catalog.format('grant execute on function %s to public', former);
  execute pg_catalog.format('comment on function %s is %L', former, 'internal: calls ' || replacement::text);
  execute pg_catalog.format('alter extension dbdp drop function %s', former);
  execute pg_catalog.format('alter function %s depends on extension dbdp', former);
  if former::text like 'dbdp.%' then
    execute pg_catalog.format('alter function %s set schema dbdp_internal', former);
  end if;
end
$body$;

do $former$
declare
  former regprocedure;
  detail text;
  gone text[] := '{}';
  details text[] := '{}';
begin
  for former in
    select p.oid
    from pg_catalog.pg_proc as p
    where p.pronamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
    and p.proname like 'former\_%'
    order by p.oid::pg_catalog.regprocedure::text
  loop
    begin
      execute pg_catalog.format('drop routine %s', former);
      continue;
    exception when dependent_objects_still_exist then
      get stacked diagnostics detail = pg_exception_detail;
    end;
    if dbdp_internal.replacement_of(former) is null then
      gone := gone || pg_catalog.regexp_replace(former::text, '^(dbdp\w*\.)former_(\w+).*', '\1\2');
      details := details || detail;
    else
      perform dbdp_internal.keep(former, dbdp_internal.replacement_of(former));
    end if;
  end loop;
  if gone <> '{}' then
    raise exception using
      errcode = 'dependent_objects_still_exist',
      message = 'this version has no function with the same parameters and results as ' || pg_catalog.array_to_string(gone, ' or '),
      detail = pg_catalog.array_to_string(details, E'\n');
  end if;
end
$former$;

drop function
  dbdp.retire, dbdp_internal.parameters_of, dbdp_internal.replacement_of, dbdp_internal.call_of, dbdp_internal.keep;
