-- A role with a name of dbdp's may exist already. If it can log in, has members, or grants others what it creates, it would
-- give access to every registered table, or to the odometers. This file only reads; `dbdp doctor` runs it too.
do $sound$
declare
  faults text;
  remedies text;
begin
  select pg_catalog.string_agg(f.fault, '; '), pg_catalog.string_agg(f.remedy, ' ')
  into faults, remedies
  from (
    select pg_catalog.format('%s has %s', r.rolname, pg_catalog.string_agg(a.attribute, ', ')) as fault,
           pg_catalog.format('alter role %s no%s;', r.rolname, pg_catalog.string_agg(a.attribute, ' no')) as remedy
    from pg_catalog.pg_roles as r
    cross join lateral (
      values ('login', r.rolcanlogin), ('superuser', r.rolsuper), ('createrole', r.rolcreaterole),
             ('createdb', r.rolcreatedb), ('replication', r.rolreplication), ('bypassrls', r.rolbypassrls)
    ) as a (attribute, is_set)
    where r.rolname in ('dbdp_owner', 'dbdp_predictor', 'dbdp_analyst', 'dbdp_data_owner')
      and a.is_set
    group by r.rolname
    union all
    select pg_catalog.format('%s is a member of dbdp_owner', m.member::pg_catalog.regrole),
           pg_catalog.format(
             'revoke dbdp_owner from %s%s cascade;', m.member::pg_catalog.regrole, ' granted by ' || g.rolname::text)
    from pg_catalog.pg_auth_members as m
    left join lateral (
      select pg_catalog.quote_ident(r.rolname) as rolname from pg_catalog.pg_roles as r where r.oid = m.grantor
    ) as g on true
    where m.roleid = pg_catalog.to_regrole('dbdp_owner')
      and exists ( -- a superuser may do everything anyway, members of its role may not
        select from pg_catalog.pg_roles as r
        where not r.rolsuper and pg_catalog.pg_has_role(r.oid, m.member, 'member')
      )
    union all
    select pg_catalog.format('%s may use %s that dbdp_owner creates', t.grantee, t.objects),
           pg_catalog.format('alter default privileges for role dbdp_owner%s revoke all on %s from %s;',
             t.place, t.objects, t.grantee)
    from (
      select distinct case d.defaclobjtype when 'S' then 'sequences' else 'tables' end as objects,
             case a.grantee when 0 then 'public' else a.grantee::pg_catalog.regrole::text end as grantee,
             case when d.defaclnamespace <> 0 then ' in schema ' || d.defaclnamespace::pg_catalog.regnamespace::text
             end as place
      from pg_catalog.pg_default_acl as d
      cross join lateral pg_catalog.aclexplode(d.defaclacl) as a
      where d.defaclrole = pg_catalog.to_regrole('dbdp_owner')
        and d.defaclobjtype in ('r', 'S')
        and a.grantee <> d.defaclrole
    ) as t
  ) as f;
  if faults is not null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = 'the roles of dbdp would allow other roles to read registered tables or change budgets: ' || faults,
      hint = remedies;
  end if;
end
$sound$;
