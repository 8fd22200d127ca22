-- Before each update: nobody may put code on a table of the extension while a superuser changes it.
do $locked$
declare
  own pg_catalog.regclass;
begin
  for own in
    select c.oid
    from pg_catalog.pg_class as c
    where c.relnamespace = pg_catalog.to_regnamespace('dbdp')
    and c.relkind = 'r'
    order by c.relname
  loop
    execute pg_catalog.format('lock table %s in share row exclusive mode', own);
  end loop;
end
$locked$;

-- A step calls this for each function whose parameters or results changed, as long as the update runs. after.sql drops what is
-- retired, or has it call the function that replaces it if an object of a user depends on it.
create function dbdp.retire(old regprocedure, replaced_by name default null) returns void
language plpgsql
as $body$
begin
  if old is not null then
    execute pg_catalog.format(
      'alter routine %s rename to %I', old,
      'former_' || coalesce(replaced_by, (select p.proname from pg_catalog.pg_proc as p where p.oid = old)));
  end if;
end
$body$;
