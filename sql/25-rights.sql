-- Rights belong to the role that logged in: SET ROLE neither adds any nor takes any away. But where a superuser maintains
-- a table, code of its owner runs, such as that of an index: what it selects is cut to what the owner may see. The doors
-- run as dbdp_owner, and refuse such code. The policies of sql/80-policies.sql and the doors ask the same functions; a
-- policy asks once for a query, not for each row.

create or replace function dbdp.own_roles() returns name[]
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
begin atomic
  select array(
    select r.rolname
    from pg_catalog.pg_roles as login
    join pg_catalog.pg_roles as r on pg_catalog.pg_has_role(login.oid, r.oid, 'member')
    where login.rolname = session_user
    and (
      not login.rolsuper
      or current_user in (session_user, pg_catalog.current_setting('role')::name, 'dbdp_owner')
      or pg_catalog.pg_has_role(current_user, r.oid, 'member')
    )
  );
end;
comment on function dbdp.own_roles is 'internal: the roles that the session''s user is a member of, itself included; in the session of a superuser those of the role whose code runs';

create or replace function dbdp.own_datasets(roles name[]) returns int[]
language sql
stable parallel safe
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
begin atomic
  select array(
    select d.id
    from dbdp.dataset as d
    where d.registered_by = any (roles) and d.registered_by = any (dbdp.own_roles())
    or session_user = any (roles) and (select r.rolsuper from pg_catalog.pg_roles as r where r.rolname = session_user)
  );
end;
comment on function dbdp.own_datasets is 'internal: datasets that these roles of the session''s user registered; for a superuser all, also of roles that are gone';

create or replace function dbdp.open_datasets(roles name[]) returns int[]
language sql
stable parallel safe
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
begin atomic
  select dbdp.own_datasets(roles) || array(
    select a.dataset_id
    from dbdp.allowance as a
    where a.revoked_at is null
    and a.role = any (roles)
    and a.role = any (dbdp.own_roles())
  );
end;
comment on function dbdp.open_datasets is 'internal: datasets that these roles of the session''s user may train on: their own, and those of their allowances';

create or replace function dbdp.granted_models(roles name[]) returns bigint[]
language sql
stable parallel safe
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
begin atomic
  select array(
    select g.model_id
    from dbdp.prediction_grant as g
    where g.role = any (roles)
    and g.role = any (dbdp.own_roles())
  );
end;
comment on function dbdp.granted_models is 'internal: models that these roles of the session''s user were given to predict with';

create or replace function dbdp.allowance_spent(allowance int, out charged float8, out leaked float8)
language sql
volatile
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
begin atomic
  select coalesce(pg_catalog.pg_sequence_last_value(pg_catalog.to_regclass('dbdp.allowance_charge_' || a.id)), 0) / 1e9::float8,
         coalesce(pg_catalog.pg_sequence_last_value(pg_catalog.to_regclass('dbdp.allowance_leak_' || a.id)), 0) / 1e18::float8
  from dbdp.allowance as a
  where a.id = allowance
  and (a.role = any (dbdp.own_roles()) or a.dataset_id = any (dbdp.own_datasets(dbdp.own_roles())));
end;
comment on function dbdp.allowance_spent is 'internal: what was spent within an allowance of the session''s user, or of a dataset that it registered';

create or replace view dbdp.allowances with (security_invoker) as
select d.name as dataset,
       a.role,
       a.epsilon,
       a.charge_limit / 1e9::float8 as charge_limit,
       spent.charged,
       a.leak_limit / 1e18::float8 as leak_limit,
       spent.leaked,
       a.implied_epsilon,
       a.implied_delta,
       a.granted_by,
       a.granted_at
from dbdp.allowance as a
join dbdp.dataset as d on d.id = a.dataset_id
cross join lateral dbdp.allowance_spent(a.id) as spent
where a.revoked_at is null
and d.dropped_at is null;
comment on view dbdp.allowances is 'who may train on which dataset, and how much of its budget each may spend and has spent; without an epsilon the dataset''s budget alone binds';

create or replace function dbdp.grant_training(dataset text, role name, epsilon float8 default null) returns void
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
@plpython grant_training@
$body$;
comment on function dbdp.grant_training is
'let a role, and its members, train on a dataset; with an epsilon they may spend that part of its budget and no more. For the role that registered it.';

create or replace function dbdp.revoke_training(dataset text, role name) returns void
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
@plpython revoke_training@
$body$;
comment on function dbdp.revoke_training is
'end a role''s right to train on a dataset; what it spent stays spent if it is given the right again. For the role that registered it.';

create or replace function dbdp.grant_prediction(model bigint, role name) returns void
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
@plpython grant_prediction@
$body$;
comment on function dbdp.grant_prediction is
'let a role, and its members, predict with a model. For the role that released it, or registered its dataset.';

create or replace function dbdp.revoke_prediction(model bigint, role name) returns void
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
@plpython revoke_prediction@
$body$;
comment on function dbdp.revoke_prediction is
'end a role''s right to predict with a model; a session that has used it may do so until it ends. For the role that released it, or registered its dataset.';
