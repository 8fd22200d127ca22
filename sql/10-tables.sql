create table dbdp.dataset (
  id int generated always as identity primary key,
  name text not null,
  source regclass not null,
  source_name text not null,
  rows bigint not null check (rows > 0),
  declaration json not null,
  column_types json not null,
  epsilon float8 not null,
  delta float8 not null,
  mode text not null,
  rdp_order float8,
  charge_limit bigint not null,
  leak_limit bigint not null,
  registered_by name not null default session_user,
  registered_at timestamptz not null default pg_catalog.now(),
  registered_in xid8 not null default pg_catalog.pg_current_xact_id(),
  dropped_at timestamptz,
  unit text,
  max_rows int,
  check ((unit is null) = (max_rows is null))
);
create unique index dataset_name on dbdp.dataset (name) where dropped_at is null;
create unique index dataset_source on dbdp.dataset (source) where dropped_at is null;
comment on table dbdp.dataset is 'what owners declared, as public facts; two sequences for each row count what was spent';

create table dbdp.ledger (
  id bigint generated always as identity primary key,
  dataset_id int not null references dbdp.dataset,
  charged_at timestamptz not null default pg_catalog.clock_timestamp(),
  charged_by name not null default session_user,
  algorithm text not null,
  epsilon float8 not null,
  delta float8 not null,
  charge bigint not null,
  leak bigint not null,
  plan json not null
);
comment on table dbdp.ledger is 'the readable history of charges; the odometers are the truth, since a rollback cannot undo them';

create table dbdp.model (
  id bigint generated always as identity primary key,
  dataset_id int not null references dbdp.dataset,
  feature_names text[] not null,
  coefficients float8[], -- a row for each class
  intercepts float8[],
  intercept float8 generated always as (
    case when pg_catalog.cardinality(intercepts) = 1 then intercepts[1] end
  ) stored,
  network json, -- null for linear models
  parameters float8[],
  declaration json not null,
  receipt json not null,
  check ((network is null) = (parameters is null)),
  check ((network is null) = (coefficients is not null)),
  check ((network is null) = (intercepts is not null))
);
alter table dbdp.model alter column parameters set storage external; -- noise cannot be compressed
comment on table dbdp.model is 'released models with their receipts: coefficients and intercepts, or a network and its parameters';

create view dbdp.datasets as
select d.name,
       d.source_name as source,
       d.rows,
       d.declaration,
       d.epsilon,
       d.delta,
       d.mode,
       d.charge_limit / 1e9 as charge_limit,
       d.leak_limit / 1e18 as leak_limit,
       d.registered_by,
       d.registered_at,
       d.unit,
       d.max_rows
from dbdp.dataset as d
where d.dropped_at is null;
comment on view dbdp.datasets is 'registered datasets: public facts and total budgets';

create view dbdp.models as
select m.id,
       d.name as dataset,
       m.receipt ->> 'algorithm' as algorithm,
       (m.receipt ->> 'epsilon')::float8 as epsilon,
       (m.receipt ->> 'delta')::float8 as delta,
       m.feature_names,
       m.coefficients,
       m.intercept,
       m.intercepts,
       m.network,
       m.receipt
from dbdp.model as m
join dbdp.dataset as d on d.id = m.dataset_id;
comment on view dbdp.models is 'released models';

select pg_catalog.pg_extension_config_dump('dbdp.dataset', '');
select pg_catalog.pg_extension_config_dump('dbdp.ledger', '');
select pg_catalog.pg_extension_config_dump('dbdp.model', '');
select pg_catalog.pg_extension_config_dump('dbdp.dataset_id_seq', '');
select pg_catalog.pg_extension_config_dump('dbdp.ledger_id_seq', '');
select pg_catalog.pg_extension_config_dump('dbdp.model_id_seq', '');
