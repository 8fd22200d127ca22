-- After each update: a retired function is dropped, also one that an earlier update kept. If an object of a user depends on it,
-- it stays as dbdp_internal.former_NAME and calls dbdp.NAME with the parameters that it had, by their names. The object itself
-- is not made again: none of its code runs in an update, and its owner, rights and rows stay. The function leaves the
-- extension, so that a dump has it. Whoever may call dbdp.NAME may call it.
drop function dbdp.retire;

do $former$
declare
  former regprocedure;
  calling text;
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
    with parameters as ( -- of the former function and of all that may replace it
      select p.oid as routine,
             a.place,
             p.proargnames[a.place] as name,
             a.type,
             coalesce(p.proargmodes[a.place], 'i') in ('o', 't') as is_result,
             pg_catalog.pg_get_function_arg_default(p.oid, a.place::int) as value
      from pg_catalog.pg_proc as p
      cross join lateral pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) with ordinality as a (type, place)
      where p.pronamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
    ), replacing as (
      select n.*
      from pg_catalog.pg_proc as o
      join pg_catalog.pg_proc as n
        on n.pronamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
        and n.proname = pg_catalog.substr(o.proname::text, 8)
        and (n.prokind, n.proretset, n.prorettype) = (o.prokind, o.proretset, o.prorettype)
      where o.oid = former
      and o.prokind = 'f'
      and not exists ( -- a parameter or a result that is gone
        select p.name, p.type, p.is_result from parameters as p where p.routine = o.oid
        except
        select p.name, p.type, p.is_result from parameters as p where p.routine = n.oid
      )
      and not exists ( -- a parameter that a call must have now
        select p.name from parameters as p where p.routine = n.oid and not p.is_result and p.value is null
        except
        select p.name from parameters as p where p.routine = o.oid
      )
      order by n.pronargs
      limit 1
    )
    select pg_catalog.format(
             'create or replace function %s.%I(%s) returns %s language sql %s parallel %s '
             'set search_path = pg_catalog, pg_temp as %L',
             o.pronamespace::pg_catalog.regnamespace, o.proname, declared.list,
             case when o.proretset then 'setof ' else '' end || pg_catalog.format_type(o.prorettype, null),
             case n.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
             case n.proparallel when 's' then 'safe' when 'r' then 'restricted' else 'unsafe' end,
             pg_catalog.format(
               'select %s from %s.%I(%s) as answer', coalesce(declared.results, 'answer.*'),
               n.pronamespace::pg_catalog.regnamespace, n.proname, declared.passed))
    into calling
    from pg_catalog.pg_proc as o
    cross join replacing as n
    cross join lateral (
      select pg_catalog.string_agg(
               pg_catalog.concat_ws(
                 ' ', case when p.is_result then 'out' end, pg_catalog.quote_ident(p.name),
                 pg_catalog.format_type(p.type, null), 'default ' || coalesce(q.value, p.value)),
               ', ' order by p.place) as list,
             pg_catalog.string_agg(
               pg_catalog.format('%I => $%s', p.name, p.place), ', ' order by p.place) filter (where not p.is_result) as passed,
             pg_catalog.string_agg(
               pg_catalog.format('answer.%I', p.name), ', ' order by p.place) filter (where p.is_result) as results
      from parameters as p
      join parameters as q on q.routine = n.oid and (q.name, q.is_result) = (p.name, p.is_result)
      where p.routine = o.oid
    ) as declared
    where o.oid = former;
    if calling is null then
      gone := gone || pg_catalog.regexp_replace(former::text, '^(dbdp\w*\.)former_(\w+).*', '\1\2');
      details := details || detail;
      continue;
    end if;
    if not exists (
      select from pg_catalog.pg_depend as d
      where d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.objid = former and d.deptype = 'e'
    ) then
      execute pg_catalog.format('alter extension dbdp add function %s', former); -- the script replaces its own functions only
    end if;
    execute calling;
    execute pg_catalog.format('alter function %s owner to current_user', former);
    execute pg_catalog.format('grant execute on function %s to public', former);
    execute pg_catalog.format(
      'comment on function %s is %L', former,
      'internal: what users'' objects call since an update; it calls the function that replaces it');
    execute pg_catalog.format('alter extension dbdp drop function %s', former);
    execute pg_catalog.format('alter function %s depends on extension dbdp', former);
    if former::text like 'dbdp.%' then
      execute pg_catalog.format('alter function %s set schema dbdp_internal', former);
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
