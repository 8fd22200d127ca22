-- Every right on an object of the extension that its owner did not have anyway: sql/policies/2-privileges.sql revokes what
-- is listed before it grants, and `dbdp doctor` compares the list with the one of this version. Odometers are no members of
-- the extension, so that objects are found by their schema; nobody but a superuser and dbdp_owner creates others there.
create or replace view dbdp_internal.rights with (security_invoker) as
select o.object,
       o.part,
       case a.grantee when 0 then 'public' else a.grantee::pg_catalog.regrole::text end as grantee,
       pg_catalog.lower(a.privilege_type) as privilege,
       a.is_grantable
from (
  select 'schema ' || pg_catalog.quote_ident(n.nspname) as object,
         null as part,
         n.nspowner as owner,
         coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner)) as rights
  from pg_catalog.pg_namespace as n
  where n.nspname in ('dbdp', 'dbdp_internal')
  union all
  select 'routine ' || p.oid::pg_catalog.regprocedure::text,
         null,
         p.proowner,
         coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))
  from pg_catalog.pg_proc as p
  where p.pronamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
  union all
  select case c.relkind when 'S' then 'sequence ' else 'table ' end || c.oid::pg_catalog.regclass::text,
         null,
         c.relowner,
         coalesce(c.relacl, pg_catalog.acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))
  from pg_catalog.pg_class as c
  where c.relnamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
  and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
  union all
  select 'table ' || c.oid::pg_catalog.regclass::text,
         pg_catalog.quote_ident(t.attname),
         c.relowner,
         t.attacl
  from pg_catalog.pg_class as c
  join pg_catalog.pg_attribute as t on t.attrelid = c.oid and not t.attisdropped
  where c.relnamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
  union all
  select 'type ' || t.oid::pg_catalog.regtype::text,
         null,
         t.typowner,
         coalesce(t.typacl, pg_catalog.acldefault('T', t.typowner))
  from pg_catalog.pg_type as t
  left join pg_catalog.pg_class as c on c.oid = t.typrelid
  where t.typnamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
  and t.typcategory <> 'A'
  and coalesce(c.relkind, 'c') = 'c' -- the type of a table's rows has no rights that anybody can change
) as o
cross join lateral pg_catalog.aclexplode(o.rights) as a
where a.grantee <> o.owner;
comment on view dbdp_internal.rights is 'internal: the rights on the objects of the extension that others than their owners have';
