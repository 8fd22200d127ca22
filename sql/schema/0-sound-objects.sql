-- Code or constraints that another role put on the extension's tables, by a right that the extension does not grant: a trigger
-- runs as dbdp_owner, in an update even as a superuser, and a foreign key stops a revocation. This file only reads; `dbdp
-- doctor` runs it too, and an update before all else.
do $sound$
declare
  faults text;
  remedies text;
begin
  select pg_catalog.string_agg(f.fault, '; '), pg_catalog.string_agg(f.remedy, ' ')
  into faults, remedies
  from (
    with own as (
      select c.oid, c.oid::pg_catalog.regclass as name
      from pg_catalog.pg_class as c
      where c.relnamespace in (pg_catalog.to_regnamespace('dbdp'), pg_catalog.to_regnamespace('dbdp_internal'))
    )
    select pg_catalog.format('trigger %I on %s', t.tgname, o.name) as fault,
           pg_catalog.format('drop trigger %I on %s;', t.tgname, o.name) as remedy
    from own as o
    join pg_catalog.pg_trigger as t on t.tgrelid = o.oid
    where not t.tgisinternal
    and t.tgfoid is distinct from pg_catalog.to_regprocedure('dbdp_internal.identify()') -- which only superusers may use
    union all
    select pg_catalog.format('rule %I on %s', r.rulename, o.name),
           pg_catalog.format('drop rule %I on %s;', r.rulename, o.name)
    from own as o
    join pg_catalog.pg_rewrite as r on r.ev_class = o.oid
    where r.ev_type <> '1' -- a view has one
    union all
    select pg_catalog.format('foreign key %I of %s', c.conname, c.conrelid::pg_catalog.regclass),
           pg_catalog.format('alter table %s drop constraint %I;', c.conrelid::pg_catalog.regclass, c.conname)
    from own as o
    join pg_catalog.pg_constraint as c on c.confrelid = o.oid
    where c.conrelid not in (select each.oid from own as each)
    union all
    select pg_catalog.format('%s, which inherits from %s', i.inhrelid::pg_catalog.regclass, o.name),
           pg_catalog.format('alter table %s no inherit %s;', i.inhrelid::pg_catalog.regclass, o.name)
    from own as o
    join pg_catalog.pg_inherits as i on i.inhparent = o.oid
  ) as f;
  if faults is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = 'others have put on tables of dbdp what is not part of it: ' || faults,
      hint = remedies;
  end if;
end
$sound$;
