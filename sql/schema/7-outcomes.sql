-- What became of each charge. Append-only: the functions of dbdp_owner add rows, and nobody but a superuser changes them.
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
comment on table dbdp.outcome is 'what became of a charge: a model was released, an answer was shown, or it failed; a charge without a row is not finished, or was lost';

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
comment on table dbdp.former_declaration is 'declarations that an owner replaced, when, and why; the present one is in dbdp.dataset, each model has its own';

-- When datasets answered before dbdp.answer_at_multiples changed it.
create table if not exists dbdp.former_answer_time (
  id bigint generated always as identity primary key,
  dataset_id int not null references dbdp.dataset,
  seconds int,
  replaced_at timestamptz not null default pg_catalog.clock_timestamp(),
  replaced_by name not null default session_user,
  reason text not null
);
comment on table dbdp.former_answer_time is 'at multiples of how many seconds after a charge a dataset answered, null at once, until an owner changed it, when, and why; the present number is in dbdp.dataset';

select pg_catalog.pg_extension_config_dump('dbdp.outcome', '');
select pg_catalog.pg_extension_config_dump('dbdp.outcome_id_seq', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_declaration', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_declaration_id_seq', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_answer_time', '');
select pg_catalog.pg_extension_config_dump('dbdp.former_answer_time_id_seq', '');
