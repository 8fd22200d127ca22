-- The outcome of each charge. Append-only: the functions of dbdp_owner add rows, and only a superuser can change them.
create table if not exists dbdp.outcome (
  id bigint generated always as identity primary key,
  ledger_id bigint not null references dbdp.ledger,
  at timestamptz not null default pg_catalog.clock_timestamp(),
  outcome text not null check (outcome in ('released', 'shown', 'failed')),
  model bigint references dbdp.model,
  detail text,
  check ((outcome = 'released') = (model is not null))
);
create index if not exists outcome_ledger on dbdp.outcome (ledger_id);
comment on table dbdp.outcome is 'the outcome of a charge: a model was released, a score was shown, or it failed. A charge without a row is not finished, or was interrupted';

-- The declarations that dbdp.redeclare replaced.
create table if not exists dbdp.former_declaration (
  id bigint generated always as identity primary key,
  dataset_id int not null references dbdp.dataset,
  declaration json not null,
  column_types json not null,
  replaced_at timestamptz not null default pg_catalog.clock_timestamp(),
  replaced_by name not null default session_user,
  reason text not null
);
comment on table dbdp.former_declaration is 'declarations that an owner replaced, when and why. The current one is in dbdp.dataset, and each model has its own copy';

-- The answer times that dbdp.answer_at_multiples replaced.
create table if not exists dbdp.former_answer_time (
  id bigint generated always as identity primary key,
  dataset_id int not null references dbdp.dataset,
  seconds int,
  replaced_at timestamptz not null default pg_catalog.clock_timestamp(),
  replaced_by name not null default session_user,
  reason text not null
);
comment on table dbdp.former_answer_time is 'answer times that an owner replaced, when and why. Results were returned at multiples of this many seconds after a charge, with null at once. The current number is in dbdp.dataset';

-- The capacities that dbdp.raise_capacity replaced.
create table if not exists dbdp.former_capacity (
  id bigint generated always as identity primary key,
  dataset_id int not null references dbdp.dataset,
  capacity bigint,
  rows bigint not null,
  replaced_at timestamptz not null default pg_catalog.clock_timestamp(),
  replaced_by name not null default session_user,
  reason text not null
);
comment on table dbdp.former_capacity is 'capacities that an owner raised, when and why, with their slots. null stands for a fixed number of rows. The current capacity is in dbdp.dataset';

select pg_catalog.pg_extension_config_dump('dbdp.outcome', '');
select pg_catalog.pg_extension_config_dump('dbdp.outcome_id_seq', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_declaration', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_declaration_id_seq', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_answer_time', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_answer_time_id_seq', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_capacity', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_capacity_id_seq', '');
