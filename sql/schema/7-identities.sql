-- Rights belong to roles, and do not follow names. A column of names has a companion, `…_id`: the identity of the role
-- that had the name when the row was written. The name stays in the row as it was then; rights go by the identity, and
-- views show the role's name of today.
--
-- An identity is '<oid of the role>/<this installation>'. So a renamed role keeps its rights, and one that is created
-- again by a name has none of the former one's. Nothing has to be written to know an identity: no session waits for
-- another one's. Installation and confirmations are in no dump, so that in a restored one every identity is a former
-- one, until somebody confirms which role it is. A base backup, a standby and pg_upgrade keep the tables and the oids.
create table if not exists dbdp.installation (
  id text primary key default pg_catalog.substr(pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', ''), 1, 16)
);
insert into dbdp.installation select where not exists (select from dbdp.installation);
comment on table dbdp.installation is 'one row, which no dump has: the identities that were given here end with it';

create table if not exists dbdp.former_role (
  identity name primary key,
  role_name name, -- in the database that was dumped; null if the role did not exist there any more
  role oid unique, -- the role here, once it is confirmed
  confirmed_by name,
  confirmed_at timestamptz -- null: nobody decided yet
);
comment on table dbdp.former_role is 'identities of another installation with rows that a dump brought here, and the roles that were confirmed to be them; a dump has the names of all roles that this database knows';

-- Columns. In rows of a version before 1.0.0 the role is the one that has the name during the update.
do $columns$
declare
  here constant text := (select i.id from dbdp.installation as i);
  each record;
begin
  for each in
    select *
    from (
      values ('dataset', 'registered_by'), ('model_name', 'owned_by'), ('model_name', 'registered_by'),
             ('ledger', 'charged_by'), ('model', 'released_by'), ('allowance', 'role'), ('prediction_grant', 'role'),
             ('name_grant', 'role')
    ) as c (relation, known)
    where not exists (
      select from pg_catalog.pg_attribute as a
      where a.attrelid = ('dbdp.' || c.relation)::pg_catalog.regclass and a.attname = c.known || '_id'
    )
  loop
    execute pg_catalog.format('alter table dbdp.%I add column %I name', each.relation, each.known || '_id');
    execute pg_catalog.format(
      'update dbdp.%I set %I = coalesce((select r.oid || ''/'' || %L from pg_catalog.pg_roles as r '
      'where r.rolname = %I)::name, %I)', each.relation, each.known || '_id', here, each.known, each.known);
    execute pg_catalog.format(
      'insert into dbdp.former_role (identity, confirmed_at) select distinct t.%I, pg_catalog.now() '
      'from dbdp.%I as t where t.%I = t.%I on conflict do nothing',
      each.known || '_id', each.relation, each.known || '_id', each.known);
    execute pg_catalog.format('alter table dbdp.%I alter column %I set not null', each.relation, each.known || '_id');
  end loop;
end
$columns$;
alter table dbdp.allowance
  drop constraint if exists allowance_dataset_id_role_key,
  drop constraint if exists allowance_of_role,
  add constraint allowance_of_role unique (dataset_id, role_id);
alter table dbdp.prediction_grant
  drop constraint if exists prediction_grant_pkey,
  add constraint prediction_grant_pkey primary key (model_id, role_id);
alter table dbdp.name_grant
  drop constraint if exists name_grant_pkey,
  add constraint name_grant_pkey primary key (name, role_id);

-- PL/pgSQL, whose plans last as long as the session: policies and views call these functions in every query. Identities
-- may be names, of dumps before 1.0.0: a cast within the CASE would be evaluated by the planner, and fail.
create or replace function dbdp_internal.identity_of(role_name name) returns name
language plpgsql
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
begin
  return (
    select coalesce(f.identity, (r.oid || '/' || i.id)::name)
    from pg_catalog.pg_roles as r
    cross join dbdp.installation as i
    left join dbdp.former_role as f on f.role = r.oid
    where r.rolname = $1
  );
end
$body$;
comment on function dbdp_internal.identity_of is 'internal: the identity of the role that has this name now; null if no role has it';

create or replace function dbdp_internal.role_of(identity name) returns oid
language plpgsql
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
begin
  return (
    select r.oid
    from dbdp.installation as i
    left join dbdp.former_role as f on f.identity = $1
    join pg_catalog.pg_roles as r
      on r.oid = coalesce(f.role, (case when split_part($1, '/', 2) = i.id then split_part($1, '/', 1) end)::oid)
  );
end
$body$;
comment on function dbdp_internal.role_of is 'internal: the role that has an identity; null if it does not exist any more, or nobody confirmed it';

create or replace function dbdp_internal.role_name(identity name, known name) returns name
language plpgsql
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
begin
  return (
    select coalesce(
      r.rolname,
      ('unconfirmed ' || case when f.confirmed_at is null then f.role_name end)::name,
      ('former ' || $2)::name
    )
    from dbdp.installation as i
    left join dbdp.former_role as f on f.identity = $1
    left join pg_catalog.pg_roles as r
      on r.oid = coalesce(f.role, (case when split_part($1, '/', 2) = i.id then split_part($1, '/', 1) end)::oid)
  );
end
$body$;
comment on function dbdp_internal.role_name is 'internal: how views show an identity: the role''s name of today; with the mark unconfirmed or former, the name that is known';

-- The functions write names, of roles that exist. Any other row comes from a dump of a version before 1.0.0, which has
-- names only: they are no roles here until somebody confirms them.
create or replace function dbdp_internal.identify() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $body$
declare
  known name;
  found_id name;
begin
  execute pg_catalog.format('select ($1).%I', tg_argv[0]) using new into known;
  if current_user = 'dbdp_owner' then
    found_id := dbdp_internal.identity_of(known);
  else
    found_id := known;
    insert into dbdp.former_role (identity, role_name) values (known, known) on conflict do nothing;
  end if;
  return pg_catalog.jsonb_populate_record(new, pg_catalog.jsonb_build_object(tg_argv[0] || '_id', found_id));
end
$body$;
comment on function dbdp_internal.identify is 'internal: give a new row the identity of the role that it names';

@each relation, known: dataset, registered_by; model_name, owned_by; model_name, registered_by; ledger, charged_by; model, released_by; allowance, role; prediction_grant, role; name_grant, role do@
create or replace trigger @known@_id before insert on dbdp.@relation@
for each row when (new.@known@_id is null) execute function dbdp_internal.identify('@known@');
@end@

-- Of the superuser, since dbdp_owner sees only models that the caller sees.
create or replace view dbdp.identity_uses with (security_barrier) as
select d.registered_by_id as identity, d.id as dataset_id
from dbdp.dataset as d
union
select l.charged_by_id, l.dataset_id
from dbdp.ledger as l
union
select m.released_by_id, m.dataset_id
from dbdp.model as m
union
select a.role_id, a.dataset_id
from dbdp.allowance as a
union
select g.role_id, m.dataset_id
from dbdp.prediction_grant as g
join dbdp.model as m on m.id = g.model_id
union
select u.identity, d.id
from dbdp.model_name as n
left join dbdp.name_grant as g on g.name = n.name
left join dbdp.dataset as d on d.name = n.dataset and d.registered_by_id = n.registered_by_id
cross join lateral (values (n.owned_by_id), (n.registered_by_id), (g.role_id)) as u (identity)
where u.identity is not null;
comment on view dbdp.identity_uses is 'internal: the datasets that each identity concerns';

create or replace view dbdp.identities with (security_barrier) as
select u.identity,
       coalesce(r.rolname, case when f.confirmed_at is null then f.role_name end) as role_name,
       r.oid as role,
       f.role_name is not null and f.confirmed_at is null as is_unconfirmed
from (select distinct u.identity from dbdp.identity_uses as u) as u
left join dbdp.former_role as f on f.identity = u.identity
left join pg_catalog.pg_roles as r on r.oid = dbdp_internal.role_of(u.identity);
comment on view dbdp.identities is 'internal: the identities in this database, with the roles that have them';

create or replace view dbdp.unconfirmed_roles with (security_barrier) as
select i.role_name,
       i.identity,
       exists (select from pg_catalog.pg_roles as r where r.rolname = i.role_name) as is_role_here
from dbdp.identities as i
where i.is_unconfirmed;
comment on view dbdp.unconfirmed_roles is 'roles of a dump that was restored here: they have no rights until dbdp.confirm_role says which role each is, or dbdp.retire_role that no role is';
comment on column dbdp.unconfirmed_roles.role_name is 'Its name when the dump was made';
comment on column dbdp.unconfirmed_roles.identity is 'What the rows have, if two have one name';
comment on column dbdp.unconfirmed_roles.is_role_here is 'Whether a role has that name here';

-- A dump has the name of today of each role, whatever its rows say, and no role: rights do not follow names. pg_dump puts
-- the condition after `select … from dbdp.former_role`, and reads no view.
select pg_catalog.pg_extension_config_dump(
  'dbdp.former_role',
  'where false union all select i.identity, i.role_name, null::oid, null::name, null::timestamptz from ('
  || pg_catalog.replace(
    pg_catalog.rtrim(pg_catalog.pg_get_viewdef('dbdp.identities'::pg_catalog.regclass), ';'),
    'dbdp.identity_uses',
    '(' || pg_catalog.rtrim(pg_catalog.pg_get_viewdef('dbdp.identity_uses'::pg_catalog.regclass), ';') || ')')
  || ') as i');
