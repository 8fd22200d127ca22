-- Rights belong to the role that logged in: SET ROLE neither adds nor removes any. Code that runs with the rights of
-- another role, such as a SECURITY DEFINER function or code that the server runs while it maintains a table, has that
-- role's rights: it sees that role's part of the ledger, in any session. No function of the extension is SECURITY
-- DEFINER: each can check which role calls it, and the interfaces act as dbdp_owner only after that check.

create or replace function dbdp_internal.caller() returns name
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
begin atomic
  select case
    when current_user in (session_user, pg_catalog.current_setting('role')::name, 'dbdp_owner') then session_user
    else current_user
  end;
end;
comment on function dbdp_internal.caller is 'internal: the role whose rights apply: the one that logged in, or the owner of code that runs with its owner''s rights';

create or replace function dbdp_internal.own_roles() returns name[]
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
begin atomic
  select array(
    select r.rolname
    from pg_catalog.pg_roles as r
    where pg_catalog.pg_has_role((select dbdp_internal.caller()), r.oid, 'member')
  );
end;
comment on function dbdp_internal.own_roles is 'internal: the roles that the caller is a member of, itself included';

-- These views read as dbdp_owner, whose policies do not use them; the functions in them run as the role that reads.
create or replace view dbdp.own_datasets as
select d.id
from dbdp.dataset as d
where d.registered_by = any ((select dbdp_internal.own_roles())::name[])
or pg_catalog.pg_has_role((select dbdp_internal.caller()), 'dbdp_owner', 'member'); -- a superuser is, and nobody else
comment on view dbdp.own_datasets is 'internal: datasets that the caller, or a role of which it is a member, registered; for a superuser all, also those of dropped roles';

create or replace view dbdp.open_datasets as
select o.id
from dbdp.own_datasets as o
union
select a.dataset_id
from dbdp.allowance as a
where a.revoked_at is null
and a.role = any ((select dbdp_internal.own_roles())::name[]);
comment on view dbdp.open_datasets is 'internal: datasets that the caller may train on: its own, and those of its allowances';

create or replace view dbdp.granted_models as
select g.model_id as id
from dbdp.prediction_grant as g
where g.role = any ((select dbdp_internal.own_roles())::name[]);
comment on view dbdp.granted_models is 'internal: models with which the caller was granted prediction';

create or replace view dbdp.granted_names as
select g.name
from dbdp.name_grant as g
where g.role = any ((select dbdp_internal.own_roles())::name[])
union
select n.name
from dbdp.model_name as n
where n.owned_by = any ((select dbdp_internal.own_roles())::name[]);
comment on view dbdp.granted_names is 'internal: names with whose models the caller may predict: its own, and those granted to it';

alter view dbdp.granted_names owner to dbdp_owner;
-- Run times of trainings may depend on rows a little. PostgreSQL shows members of pg_read_all_stats, such as pg_monitor,
-- those of every statement already.
create or replace view dbdp.watched_datasets as
select o.id
from dbdp.own_datasets as o
union
select d.id
from dbdp.dataset as d
where pg_catalog.pg_has_role((select dbdp_internal.caller()), 'pg_read_all_stats', 'usage');
comment on view dbdp.watched_datasets is 'internal: datasets whose statistics the caller may see: its own, and all to members of pg_read_all_stats';

alter view dbdp.own_datasets owner to dbdp_owner;
alter view dbdp.open_datasets owner to dbdp_owner;
alter view dbdp.granted_models owner to dbdp_owner;
alter view dbdp.watched_datasets owner to dbdp_owner;

-- It reads as dbdp_owner too; a condition of the reader's is not evaluated on rows that the reader may not see.
create or replace view dbdp.stat_datasets with (security_barrier) as
select d.id as period,
       d.name as dataset,
       d.registered_by,
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
comment on view dbdp.stat_datasets is 'for each dataset charges, how they ended, and seconds from a charge to its release; spent_share is the larger of the shares of epsilon and delta that are spent; for those who registered it, and for members of pg_monitor or pg_read_all_stats';
alter view dbdp.stat_datasets owner to dbdp_owner;

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
@plpython allowance_spent@
$body$;
comment on function dbdp_internal.allowance_spent is 'internal: what an allowance of the caller, or of a dataset that it registered, has spent, and has left for one more release';

create or replace view dbdp.allowances with (security_invoker) as
select d.name as dataset,
       a.role,
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
comment on view dbdp.allowances is 'which roles may train on which dataset: all releases of a role together are (epsilon, delta)-private by themselves; epsilon_left is the largest epsilon of one more release; without an epsilon only the dataset''s budget limits them';

create or replace function dbdp.grant_training(dataset text, role name, epsilon float8 default null) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing grant_training@
$body$;
comment on function dbdp.grant_training is
'let a role and its members train on a dataset; with an epsilon, all their releases together keep that epsilon by themselves. For the role that registered it.';

create or replace function dbdp.revoke_training(dataset text, role name) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing revoke_training@
$body$;
comment on function dbdp.revoke_training is
'end a role''s right to train on a dataset; what it spent still counts if it is granted the right again. For the role that registered it.';

@each type: bigint; text do@
create or replace function dbdp.grant_prediction(model @type@, role name) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing grant_prediction@
$body$;
@end@
comment on function dbdp.grant_prediction(bigint, name) is
'let a role and its members predict with a model. For the role that released it, or registered its dataset.';
comment on function dbdp.grant_prediction(text, name) is
'let a role and its members predict with all models of a name, later versions included; of ''name@2'' with that version alone. For the role that owns the name, or registered its dataset.';

@each type: bigint; text do@
create or replace function dbdp.revoke_prediction(model @type@, role name) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing revoke_prediction@
$body$;
@end@
comment on function dbdp.revoke_prediction(bigint, name) is
'end a role''s right to predict with a model; a session that has used the model can use it until the session ends. For the role that released it, or registered its dataset.';
comment on function dbdp.revoke_prediction(text, name) is
'end a role''s right to predict with the models of a name; grants of single models stay. For the role that owns the name, or registered its dataset.';
