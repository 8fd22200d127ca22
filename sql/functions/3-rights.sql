-- Rights belong to the role that logged in: SET ROLE neither adds nor removes any. Code that runs with the rights of
-- another role, such as a SECURITY DEFINER function or code that the server runs while it maintains a table, has that
-- role's rights: it sees that role's part of the ledger, in any session. No interface of the extension is SECURITY
-- DEFINER: each can check which role calls it, and acts as dbdp_owner only after that check.

-- SET ROLE and code of that role have the same settings and the same current_user; only the server's security context
-- differs. Python starts for this in sessions that used SET ROLE only.
create or replace function dbdp_internal.is_role_taken() returns boolean
language plpython3u
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
import sys

if "MODULE_PATHNAME" not in sys.path:
    sys.path.insert(0, "MODULE_PATHNAME")
from dbdp.sessions.inside.backend import is_role_taken

return is_role_taken()
$body$;
comment on function dbdp_internal.is_role_taken is 'internal: whether the session itself took the role in force, by SET ROLE, so that no code of another role calls';

create or replace function dbdp_internal.caller() returns name
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
begin atomic
  select case
    when current_user in (session_user, 'dbdp_owner') then session_user
    when current_user <> pg_catalog.current_setting('role')::name then current_user
    when dbdp_internal.is_role_taken() then session_user
    else current_user
  end;
end;
comment on function dbdp_internal.caller is 'internal: the role with the privileges that apply: the one that logged in, or the owner of code that runs with its owner''s privileges';

-- Since PostgreSQL 16 a member may neither inherit a role's rights nor take the role, and only administer it: then it has none
-- of them. Before, whoever is a member can take the role.
create or replace function dbdp_internal.membership() returns text
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
begin atomic
  select case when pg_catalog.current_setting('server_version_num')::int >= 160000 then 'usage, set' else 'member' end;
end;
comment on function dbdp_internal.membership is 'internal: what pg_has_role is asked for, so that members who only administer a role do not count';

create or replace function dbdp_internal.own_roles() returns name[]
language plpgsql
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
begin
  return array(
    select coalesce(f.identity, (r.oid || '/' || i.id)::name)
    from pg_catalog.pg_roles as r
    cross join dbdp.installation as i
    left join dbdp.former_role as f on f.role = r.oid
    where pg_catalog.pg_has_role((select dbdp_internal.caller()), r.oid, (select dbdp_internal.membership()))
  );
end
$body$;
comment on function dbdp_internal.own_roles is 'internal: the identities of the roles that the caller is a member of, itself included';

-- These views read as dbdp_owner, whose policies do not use them; the functions in them run as the role that reads. They are
-- barriers: a cheap function of the reader's, or an error, would see the rows that a condition of the view leaves out.
create or replace view dbdp.own_datasets with (security_barrier) as
select d.id
from dbdp.dataset as d
where d.registered_by_id = any ((select dbdp_internal.own_roles())::name[])
or pg_catalog.pg_has_role((select dbdp_internal.caller()), 'dbdp_owner', (select dbdp_internal.membership())); -- a superuser is, and nobody else
comment on view dbdp.own_datasets is 'internal: datasets that the caller, or a role of which it is a member, registered. For a superuser all, also those of dropped roles';

create or replace view dbdp.open_datasets with (security_barrier) as
select o.id
from dbdp.own_datasets as o
union
select a.dataset_id
from dbdp.allowance as a
where a.revoked_at is null
and a.role_id = any ((select dbdp_internal.own_roles())::name[]);
comment on view dbdp.open_datasets is 'internal: datasets that the caller may train on: its own, and those of its allowances';

create or replace view dbdp.granted_models with (security_barrier) as
select g.model_id as id
from dbdp.prediction_grant as g
where g.role_id = any ((select dbdp_internal.own_roles())::name[]);
comment on view dbdp.granted_models is 'internal: models with which the caller was granted prediction';

create or replace view dbdp.granted_names with (security_barrier) as
select g.name
from dbdp.name_grant as g
where g.role_id = any ((select dbdp_internal.own_roles())::name[])
union
select n.name
from dbdp.model_name as n
where n.owned_by_id = any ((select dbdp_internal.own_roles())::name[]);
comment on view dbdp.granted_names is 'internal: names of models that the caller may predict with: its own, and those granted to it';

alter view dbdp.granted_names owner to dbdp_owner;
-- Run times of trainings may depend on rows a little. PostgreSQL shows members of pg_read_all_stats, such as pg_monitor,
-- those of every statement already.
create or replace view dbdp.watched_datasets with (security_barrier) as
select o.id
from dbdp.own_datasets as o
union
select d.id
from dbdp.dataset as d
where pg_catalog.pg_has_role((select dbdp_internal.caller()), 'pg_read_all_stats', 'usage');
comment on view dbdp.watched_datasets is 'internal: datasets with statistics that the caller may see: its own, and all for members of pg_read_all_stats';

alter view dbdp.own_datasets owner to dbdp_owner;
alter view dbdp.open_datasets owner to dbdp_owner;
alter view dbdp.granted_models owner to dbdp_owner;
alter view dbdp.watched_datasets owner to dbdp_owner;

-- It reads as dbdp_owner too.
create or replace view dbdp.stat_datasets_details with (security_barrier) as
select d.id as period,
       d.name as dataset,
       dbdp_internal.role_name(d.registered_by_id, d.registered_by) as registered_by,
       d.registered_at,
       s.charges,
       s.releases,
       s.failures,
       s.charges - s.releases - s.failures as unfinished,
       s.total_seconds,
       s.total_seconds / nullif(s.releases, 0) as mean_seconds,
       s.max_seconds,
       s.last_charge,
       s.last_release,
       spent.spent_share,
       spent.unrecorded_share
from dbdp.dataset as d
cross join lateral (
  select pg_catalog.count(*) as charges,
         pg_catalog.count(*) filter (where o.outcome <> 'failed') as releases,
         pg_catalog.count(*) filter (where o.outcome = 'failed') as failures,
         coalesce(pg_catalog.sum(o.seconds) filter (where o.outcome <> 'failed'), 0) as total_seconds,
         pg_catalog.max(o.seconds) filter (where o.outcome <> 'failed') as max_seconds,
         pg_catalog.max(l.charged_at) as last_charge,
         pg_catalog.max(o.at) filter (where o.outcome <> 'failed') as last_release
  from dbdp.ledger as l
  left join lateral (
    select pg_catalog.min(o.outcome) as outcome,
           pg_catalog.max(o.at) as at,
           extract(epoch from pg_catalog.max(o.at) - l.charged_at)::float8 as seconds
    from dbdp.outcome as o
    where o.ledger_id = l.id
  ) as o on true
  where l.dataset_id = d.id
) as s
cross join lateral dbdp_internal.dataset_spent(d.id) as spent
where d.dropped_at is null
and d.id in (select w.id from dbdp.watched_datasets as w);
comment on view dbdp.stat_datasets_details is 'for each dataset its charges, how they ended, and seconds from a charge to its release. spent_share is the larger of the spent fractions of epsilon and delta. For the role that registered it, and for members of pg_monitor or pg_read_all_stats';
alter view dbdp.stat_datasets_details owner to dbdp_owner;

create or replace view dbdp.stat_datasets with (security_invoker) as
select v.dataset,
       v.charges,
       v.releases,
       v.failures,
       v.unfinished,
       pg_catalog.round(v.mean_seconds::numeric, 3)::float8 as mean_seconds,
       v.last_charge::date as last_charge,
       pg_catalog.round(v.spent_share::numeric, 4)::float8 as spent_share
from dbdp.stat_datasets_details as v;
comment on view dbdp.stat_datasets is 'for each dataset its charges, how they ended, mean seconds from a charge to its release, and the spent fraction of the budget. dbdp.stat_datasets_details has all figures. For the role that registered it, and for members of pg_monitor or pg_read_all_stats';
comment on column dbdp.stat_datasets.dataset is 'Its name';
comment on column dbdp.stat_datasets.charges is 'Charges in the ledger, and how they ended';
comment on column dbdp.stat_datasets.releases is 'Charges in the ledger, and how they ended';
comment on column dbdp.stat_datasets.failures is 'Charges in the ledger, and how they ended';
comment on column dbdp.stat_datasets.unfinished is 'Charges in the ledger, and how they ended';
comment on column dbdp.stat_datasets.mean_seconds is 'From a charge to its release';
comment on column dbdp.stat_datasets.last_charge is 'Day of the last charge';
comment on column dbdp.stat_datasets.spent_share is 'Part of the budget that was spent, and that was spent by charges without a row in the ledger';
comment on column dbdp.stat_datasets_details.period is 'Number of the dataset; a renewed budget has another';
comment on column dbdp.stat_datasets_details.dataset is 'Its name';
comment on column dbdp.stat_datasets_details.registered_by is 'The role that registered it';
comment on column dbdp.stat_datasets_details.registered_at is 'When it was registered';
comment on column dbdp.stat_datasets_details.charges is 'Charges in the ledger, and how they ended';
comment on column dbdp.stat_datasets_details.releases is 'Charges in the ledger, and how they ended';
comment on column dbdp.stat_datasets_details.failures is 'Charges in the ledger, and how they ended';
comment on column dbdp.stat_datasets_details.unfinished is 'Charges in the ledger, and how they ended';
comment on column dbdp.stat_datasets_details.total_seconds is 'From a charge to its release';
comment on column dbdp.stat_datasets_details.mean_seconds is 'From a charge to its release';
comment on column dbdp.stat_datasets_details.max_seconds is 'From a charge to its release';
comment on column dbdp.stat_datasets_details.last_charge is 'When the last charge was';
comment on column dbdp.stat_datasets_details.last_release is 'When the last release was';
comment on column dbdp.stat_datasets_details.spent_share is 'Part of the budget that was spent, and that was spent by charges without a row in the ledger';
comment on column dbdp.stat_datasets_details.unrecorded_share is 'Part of the budget that was spent, and that was spent by charges without a row in the ledger';

create or replace function dbdp_internal.allowance_spent(
  allowance int,
  release_delta float8 default null,
  out charged float8,
  out leaked float8,
  out left_share float8,
  out epsilon_left float8
)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.allowance_spent@
$body$;
comment on function dbdp_internal.allowance_spent is 'internal: the spent and the remaining part of an allowance of the caller, or of a dataset that it registered';

create or replace view dbdp.allowances_details with (security_invoker) as
select d.name as dataset,
       dbdp_internal.role_name(a.role_id, a.role) as role,
       a.epsilon,
       a.delta,
       spent.left_share,
       spent.epsilon_left,
       a.charge_limit / 1e9::float8 as charge_limit,
       spent.charged,
       a.leak_limit / 1e18::float8 as leak_limit,
       spent.leaked,
       coalesce(a.rdp_order, d.rdp_order) as rdp_order,
       a.granted_by,
       a.granted_at
from dbdp.allowance as a
join dbdp.dataset as d on d.id = a.dataset_id
cross join lateral dbdp_internal.allowance_spent(a.id) as spent
where a.revoked_at is null
and d.dropped_at is null;
comment on view dbdp.allowances_details is 'which roles may train on which dataset. All releases of a role together are (epsilon, delta)-private. epsilon_left is the largest epsilon of one more release. Without an epsilon only the dataset''s budget limits them';

create or replace view dbdp.allowances with (security_invoker) as
select v.dataset,
       v.role,
       v.epsilon,
       v.delta,
       pg_catalog.round(v.left_share::numeric, 4)::float8 as left_share,
       v.epsilon_left
from dbdp.allowances_details as v;
comment on view dbdp.allowances is 'which roles may train on which dataset, and their remaining allowance. dbdp.allowances_details has limits and charges';
comment on column dbdp.allowances.dataset is 'Name of the dataset';
comment on column dbdp.allowances.role is 'The role that may train';
comment on column dbdp.allowances.epsilon is 'The guarantee of all its releases together; null if only the dataset''s budget limits them';
comment on column dbdp.allowances.delta is 'The guarantee of all its releases together; null if only the dataset''s budget limits them';
comment on column dbdp.allowances.left_share is 'Part of the allowance that is left';
comment on column dbdp.allowances.epsilon_left is 'Largest ε of one more release with noise at the end, at 10 % of the dataset''s δ';
comment on column dbdp.allowances_details.dataset is 'Name of the dataset';
comment on column dbdp.allowances_details.role is 'The role that may train';
comment on column dbdp.allowances_details.epsilon is 'The guarantee of all its releases together; null if only the dataset''s budget limits them';
comment on column dbdp.allowances_details.delta is 'The guarantee of all its releases together; null if only the dataset''s budget limits them';
comment on column dbdp.allowances_details.left_share is 'Part of the allowance that is left';
comment on column dbdp.allowances_details.epsilon_left is 'Largest ε of one more release with noise at the end, at 10 % of the dataset''s δ';
comment on column dbdp.allowances_details.charge_limit is 'Largest sum of charges, and the sum so far';
comment on column dbdp.allowances_details.charged is 'Largest sum of charges, and the sum so far';
comment on column dbdp.allowances_details.leak_limit is 'Largest sum of δ, and the sum so far';
comment on column dbdp.allowances_details.leaked is 'Largest sum of δ, and the sum so far';
comment on column dbdp.allowances_details.rdp_order is 'The Rényi order of its charges';
comment on column dbdp.allowances_details.granted_by is 'The role that granted it, by its name then';
comment on column dbdp.allowances_details.granted_at is 'When it was granted';

create or replace view dbdp.prediction_grants with (security_invoker) as
select g.model_id as model,
       null as name,
       dbdp_internal.role_name(g.role_id, g.role) as role,
       g.granted_by,
       g.granted_at
from dbdp.prediction_grant as g
union all
select null,
       g.name,
       dbdp_internal.role_name(g.role_id, g.role),
       g.granted_by,
       g.granted_at
from dbdp.name_grant as g;
comment on view dbdp.prediction_grants is 'which roles may predict with a model, or with all models of a name, besides those that released it or registered its dataset';
comment on column dbdp.prediction_grants.model is 'Number of the model; null for all models of a name';
comment on column dbdp.prediction_grants.name is 'The name; null for one model';
comment on column dbdp.prediction_grants.role is 'The role that may predict';
comment on column dbdp.prediction_grants.granted_by is 'The role that granted it, by its name then';
comment on column dbdp.prediction_grants.granted_at is 'When it was granted';

create or replace function dbdp.grant_training(dataset text, role name, epsilon float8 default null) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.grant_training@
$body$;
comment on function dbdp.grant_training is
'let a role and its members train on a dataset. With an epsilon, all their releases together keep that epsilon. For the role that registered it.';

create or replace function dbdp.revoke_training(dataset text, role name) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.revoke_training@
$body$;
comment on function dbdp.revoke_training is
'end a role''s grant to train on a dataset. Its spending still counts if you grant it again. For the role that registered it.';

@each type: bigint; text do@
create or replace function dbdp.grant_prediction(model @type@, role name) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.grant_prediction@
$body$;
@end@
comment on function dbdp.grant_prediction(bigint, name) is
'let a role and its members predict with a model. For the role that released it, or registered its dataset.';
comment on function dbdp.grant_prediction(text, name) is
'let a role and its members predict with all models of a name, later versions included. With ''name@2'' only that version. For the role that owns the name, or registered its dataset.';

@each type: bigint; text do@
create or replace function dbdp.revoke_prediction(model @type@, role name) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.revoke_prediction@
$body$;
@end@
comment on function dbdp.revoke_prediction(bigint, name) is
'end a role''s grant to predict with a model. A session that has used the model can use it until the session ends. For the role that released it, or registered its dataset.';
comment on function dbdp.revoke_prediction(text, name) is
'end a role''s grant to predict with the models of a name. Grants of single models stay. For the role that owns the name, or registered its dataset.';

create or replace function dbdp.confirm_role(former name, role name default null) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.confirm_role@
$body$;
comment on function dbdp.confirm_role is
'after a restore, give a role the rights of the role of the dump: of the same name by default. For a superuser; for the owner of a table if the role has rights on that owner''s tables only, and the same name.';

create or replace function dbdp.retire_role(former name) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.retire_role@
$body$;
comment on function dbdp.retire_role is
'after a restore, record that no role here is this role of the dump: its rights end. For the same roles as dbdp.confirm_role.';
