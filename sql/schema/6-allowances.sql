-- Which roles may train, and how much they may spend; which roles may predict.
create table if not exists dbdp.allowance (
  id int generated always as identity primary key,
  dataset_id int not null references dbdp.dataset,
  role name not null, -- when it was granted; sql/schema/7-identities.sql adds role_id, whom it belongs to
  epsilon float8,
  delta float8,
  rdp_order float8, -- of its charges, in mode renyi; null if that of the dataset
  charge_limit bigint,
  leak_limit bigint,
  granted_by name not null default session_user,
  granted_at timestamptz not null default pg_catalog.now(),
  revoked_at timestamptz,
  unique (dataset_id, role),
  check (pg_catalog.num_nulls(epsilon, delta, charge_limit, leak_limit) in (0, 4))
);
comment on table dbdp.allowance is 'which roles may train on a dataset, and the guarantee that all releases of each together keep. Two sequences for each row, its odometers, count the spending, and stay when a grant is revoked';

alter table dbdp.ledger
  add column if not exists allowance_id int references dbdp.allowance; -- null if the role that registered the dataset trained

create table if not exists dbdp.prediction_grant (
  model_id bigint not null references dbdp.model,
  role name not null,
  granted_by name not null default session_user,
  granted_at timestamptz not null default pg_catalog.now(),
  primary key (model_id, role)
);
comment on table dbdp.prediction_grant is 'which roles may predict with a model, other than the one that released it and the one that registered its dataset';

create table if not exists dbdp.name_grant (
  name text not null references dbdp.model_name,
  role name not null,
  granted_by name not null default session_user,
  granted_at timestamptz not null default pg_catalog.now(),
  primary key (name, role)
);
comment on table dbdp.name_grant is 'which roles may predict with all models of a name, later versions included';

select pg_catalog.pg_extension_config_dump('dbdp.allowance', '');
select pg_catalog.pg_extension_config_dump('dbdp.prediction_grant', '');
select pg_catalog.pg_extension_config_dump('dbdp.name_grant', '');
select pg_catalog.pg_extension_config_dump('dbdp.allowance_id_seq', '');
