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
  renews int unique, -- the period before this one; a foreign key to its own table would make pg_dump warn
  reason text, -- of the renewal
  answer_seconds int, -- results computed from rows are returned at multiples of them after the charge; null: at once
  capacity bigint, -- at most so many rows, or units, are read; null: their number is public and fixed
  place text, -- where the rows are, if not in the table, which is empty then and has their columns
  digest text, -- a hash of public facts of the files at that place
  constraint dataset_place check ((place is null) = (digest is null)),
  constraint dataset_capacity check (capacity * coalesce(max_rows, 1) = rows),
  constraint dataset_unit check ((unit is null) = (max_rows is null)),
  constraint dataset_renewal check ((renews is null) = (reason is null))
);
create unique index dataset_name on dbdp.dataset (name) where dropped_at is null;
create unique index dataset_source on dbdp.dataset (source) where dropped_at is null;

-- A sequence can be owned only by a column of the same role's table, and dbdp_owner owns none of the other tables.
create table dbdp.odometers (id int);
alter table dbdp.odometers owner to dbdp_owner;

create table dbdp.model_name (
  name text primary key,
  owned_by name not null default session_user, -- the role that used it first; no other adds a version
  dataset text not null,
  registered_by name not null,
  versions int not null default 0,
  folded text -- the same for names that differ in case or compatible characters; null for names of former versions
);
create unique index model_name_folded on dbdp.model_name (folded);

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
  plan json not null,
  charge_after bigint not null, -- the odometers after this charge, which include charges without a row
  leak_after bigint not null,
  model_name text references dbdp.model_name, -- reserved for the model, with its version
  model_version int
);
create index ledger_height on dbdp.ledger (dataset_id, charge_after);

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
  released_by name not null default session_user,
  is_summary boolean generated always as (network is null and coefficients is null) stored, -- its numbers: parameters
  name text references dbdp.model_name,
  version int,
  constraint model_numbers check ((coefficients is null) = (parameters is not null)),
  constraint model_intercepts check ((coefficients is null) = (intercepts is null)),
  constraint model_network check (network is null or coefficients is null),
  constraint model_version check ((name is null) = (version is null)),
  constraint model_named unique (name, version)
);
alter table dbdp.model alter column parameters set storage external; -- noise cannot be compressed

-- What the functions of training return: short, since dbdp.weights and dbdp.receipt have the rest.
create type dbdp.released as (
  model bigint,
  version text,
  algorithm text,
  epsilon float8,
  delta float8,
  noisy boolean
);
create type dbdp.released_group as (
  "group" text,
  model bigint,
  version text,
  algorithm text,
  epsilon float8,
  delta float8,
  noisy boolean
);

select pg_catalog.pg_extension_config_dump('dbdp.model_name', '');
select pg_catalog.pg_extension_config_dump('dbdp.dataset', '');
select pg_catalog.pg_extension_config_dump('dbdp.ledger', '');
select pg_catalog.pg_extension_config_dump('dbdp.model', '');
select pg_catalog.pg_extension_config_dump('dbdp.dataset_id_seq', '');
select pg_catalog.pg_extension_config_dump('dbdp.ledger_id_seq', '');
select pg_catalog.pg_extension_config_dump('dbdp.model_id_seq', '');
