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
