-- From 0.2.0 to 0.3.0: what CREATE OR REPLACE cannot do. The parts of sql/ are run after the last step.
-- Several states of the tree were installed as 0.2.0, so that each statement must do nothing where it was done before.
-- From 0.1.0 this runs after 0.1.0--0.2.0.sql: only tables of sql/schema/5-tables.sql exist then.

-- The policies use functions below.
do $policies$
declare
  old record;
begin
  for old in
    select p.polname as name, p.polrelid::pg_catalog.regclass as relation
    from pg_catalog.pg_policy as p
    join pg_catalog.pg_class as c on c.oid = p.polrelid
    where c.relnamespace = 'dbdp'::pg_catalog.regnamespace
  loop
    execute pg_catalog.format('drop policy %I on %s', old.name, old.relation);
  end loop;
end
$policies$;

-- Columns.
alter table dbdp.dataset
  add column if not exists answer_seconds int,
  add column if not exists capacity bigint,
  add column if not exists place text,
  add column if not exists digest text,
  drop constraint if exists dataset_place,
  add constraint dataset_place check ((place is null) = (digest is null)),
  drop constraint if exists dataset_capacity,
  add constraint dataset_capacity check (capacity * coalesce(max_rows, 1) = rows);
create table if not exists dbdp.model_name (
  name text primary key,
  owned_by name not null default session_user, -- the role that used it first; no other adds a version
  dataset text not null,
  registered_by name not null,
  versions int not null default 0
);
select pg_catalog.pg_extension_config_dump('dbdp.model_name', '');
alter table dbdp.ledger
  add column if not exists model_name text references dbdp.model_name,
  add column if not exists model_version int;
alter table dbdp.model
  add column if not exists name text references dbdp.model_name,
  add column if not exists version int,
  drop constraint if exists model_version,
  drop constraint if exists model_named,
  add constraint model_version check ((name is null) = (version is null)),
  add constraint model_named unique (name, version),
  add column if not exists is_summary boolean generated always as (network is null and coefficients is null) stored,
  drop constraint if exists model_check,
  drop constraint if exists model_check1,
  drop constraint if exists model_check2,
  drop constraint if exists model_numbers,
  drop constraint if exists model_intercepts,
  drop constraint if exists model_network,
  add constraint model_numbers check ((coefficients is null) = (parameters is not null)),
  add constraint model_intercepts check ((coefficients is null) = (intercepts is null)),
  add constraint model_network check (network is null or coefficients is null);

-- An allowance was a part of the budget, which implied a guarantee; now it is that guarantee. What it may spend stays.
do $allowances$
begin
  if exists (
    select from pg_catalog.pg_attribute
    where attrelid = pg_catalog.to_regclass('dbdp.allowance') and attname = 'implied_epsilon' and not attisdropped
  ) then
    drop view dbdp.allowances;
    alter table dbdp.allowance add column delta float8, add column rdp_order float8;
    update dbdp.allowance set epsilon = implied_epsilon, delta = implied_delta where epsilon is not null;
    alter table dbdp.allowance
      drop column implied_epsilon, -- and with it the constraint allowance_check
      drop column implied_delta,
      add check (pg_catalog.num_nulls(epsilon, delta, charge_limit, leak_limit) in (0, 4));
  end if;
end
$allowances$;

-- Views, and dbdp.budget, show what fits a screen; the wide ones that they were have other names, also in users' views.
do $views$
declare
  wide text;
  reporting regprocedure;
begin
  for reporting in
    select p.oid
    from pg_catalog.pg_proc as p
    where p.pronamespace = 'dbdp'::pg_catalog.regnamespace
    and p.proname in ('budget', 'try_budget')
    and p.pronargs = 3
  loop
    execute pg_catalog.format(
      'alter function %s rename to %I', reporting,
      (select p.proname from pg_catalog.pg_proc as p where p.oid = reporting) || '_details');
  end loop;
  foreach wide in array array['datasets', 'models', 'summaries', 'history', 'allowances', 'stat_datasets'] loop
    if pg_catalog.to_regclass('dbdp.' || wide) is not null
    and pg_catalog.to_regclass('dbdp.' || wide || '_details') is null then
      execute pg_catalog.format('alter view dbdp.%I rename to %I', wide, wide || '_details');
    end if;
  end loop;
end
$views$;

-- Functions that are gone, or whose arguments or results changed.
select dbdp.retire(pg_catalog.to_regprocedure(old))
from pg_catalog.unnest(array[
  'dbdp.register_dataset(text, regclass, text, text, json, float8, float8, text, boolean, text, text[], float8[], text, int, text[], float8)',
  'dbdp.register_dataset(text, regclass, text, text, json, float8, float8, text, boolean, text, text[], float8[], text, int, text[], float8, bigint)',
  'dbdp.close_dataset(text)', 'dbdp.renew_budget(text, text, float8, float8)', 'dbdp.dp_confusion(bigint, text, float8, float8)',
  'dbdp.dp_summarize(text, float8, float8)'
]) as old;
select dbdp.retire(pg_catalog.to_regprocedure('dbdp.budget(text, float8)'), 'budget_details');
drop function if exists
  dbdp.record_dataset(text, regclass, json, float8, float8, text, text, int, float8), dbdp.allowance_spent(int);
drop function if exists dbdp.granted_models(name[]), dbdp.open_datasets(name[]), dbdp.own_datasets(name[]);
drop aggregate if exists dbdp.noisy_steps(bytea, bytea, bytea), dbdp.tally(bytea, bytea, text);
drop function if exists
  dbdp.noisy_transition(bytea, bytea, bytea, bytea), dbdp.tally_transition(bytea, bytea, bytea, text),
  dbdp.transformed(bytea, bytea);
select dbdp.retire(p.oid)
from pg_catalog.pg_proc as p
where p.pronamespace = 'dbdp'::pg_catalog.regnamespace
and p.proname in (
  'dp_train', 'dp_logreg', 'dp_svm', 'dp_linreg', 'dp_explain', 'dp_tune', 'dp_explain_tuning', 'dp_train_groups',
  'dp_explain_groups')
and not 'regularization' = any (p.proargnames); -- the newest of the options of a training

create type dbdp.released as (
  model bigint, version text, algorithm text, epsilon float8, delta float8, noisy boolean);
create type dbdp.released_group as (
  "group" text, model bigint, version text, algorithm text, epsilon float8, delta float8, noisy boolean);

-- Functions that users do not call have a schema of their own. They are moved, with the rights that were granted, since
-- views of users may depend on them; this fails if another role created a schema of that name before.
create schema dbdp_internal;
do $internal$
declare
  moved regprocedure;
begin
  for moved in
    select p.oid
    from pg_catalog.pg_proc as p
    join pg_catalog.pg_language as l on l.oid = p.prolang
    where p.pronamespace = 'dbdp'::pg_catalog.regnamespace
    and (
      p.proname in (
        'accepted', 'allowance_spent', 'array_bytes', 'array_size', 'base_type', 'caller', 'charge', 'check_rows',
        'count_errors', 'count_errors_transition', 'dataset_spent', 'deal_groups', 'gradient_sum', 'gradient_transition',
        'group_sizes', 'joint_moment', 'joint_moment_transition', 'knows', 'label_counts', 'label_transition',
        'last_refusal', 'learn', 'lengths', 'loss_sum', 'loss_transition', 'measured_gradient_sum',
        'measured_gradient_transition', 'model_description', 'model_number', 'noisy_steps', 'noisy_terminate',
        'noisy_transition', 'own_roles', 'predict_class_stored', 'predict_stored', 'predict_value_stored', 'probability',
        'probability_stored', 'record_outcome', 'remember', 'resume', 'row_bytes', 'second_moment',
        'second_moment_transition', 'sgd_epoch', 'sgd_terminate', 'sgd_transition', 'shuffle', 'store_network',
        'store_release', 'table_rows', 'tally', 'tally_terminate', 'tally_transition')
      or p.proname like 'try\_%'
      or (p.proname in ('predict', 'predict_class', 'predict_value') and l.lanname = 'plpython3u')
    )
  loop
    execute pg_catalog.format('alter routine %s set schema dbdp_internal', moved);
  end loop;
end
$internal$;

-- Functions whose arguments lose their names, which CREATE OR REPLACE refuses; views of users depend on them.
update pg_catalog.pg_proc
set proargnames = null
where pronamespace = 'dbdp_internal'::pg_catalog.regnamespace
and proname in (
  'predict', 'predict_stored', 'predict_class', 'predict_class_stored', 'predict_value', 'predict_value_stored',
  'probability', 'probability_stored')
and prolang = (select l.oid from pg_catalog.pg_language as l where l.lanname = 'plpython3u');

-- Privileges of dbdp's own roles, which sql/policies/2-privileges.sql grants again.
revoke all on all functions in schema dbdp, dbdp_internal from dbdp_predictor, dbdp_analyst, dbdp_data_owner;
revoke all on all tables in schema dbdp from dbdp_predictor, dbdp_analyst, dbdp_data_owner;
