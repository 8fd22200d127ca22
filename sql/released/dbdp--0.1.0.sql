-- dbdp 0.1.0. Made from sql/ and plpython/; run by CREATE EXTENSION.

-- Made here and not by the control file, so that it belongs to the extension and goes with it; this
-- fails where another role prepared a schema of that name.
create schema dbdp;

-- Roles belong to the whole cluster, so another database may have made them.
--   dbdp_owner       owns tables and definer functions; nobody logs in as it; sees only granted tables
--   dbdp_analyst     trains, explains, predicts
--   dbdp_data_owner  also registers tables and drives training from a client
do $roles$
declare
  wanted text;
begin
  foreach wanted in array array['dbdp_owner', 'dbdp_analyst', 'dbdp_data_owner'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = wanted) then
      execute pg_catalog.format('create role %I nologin', wanted);
    end if;
  end loop;
end
$roles$;
grant dbdp_analyst to dbdp_data_owner;
grant usage on schema dbdp to public;
grant create on schema dbdp to dbdp_owner; -- the odometers of each dataset

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
  dropped_at timestamptz
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
       d.registered_at
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

create function dbdp.register_dataset(
  name text,
  source regclass,
  label text,
  positive text default null,
  features json default null,
  epsilon float8 default null,
  delta float8 default null,
  negative text default null,
  intercept boolean default true,
  mode text default 'renyi',
  classes text[] default null,
  label_bounds float8[] default null
) returns void
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import register_dataset

return register_dataset(
    name, source, label, positive, features, epsilon, delta, negative, intercept, mode, classes, label_bounds
)

$body$;
comment on function dbdp.register_dataset is
'declare a table once: features are column -> [lower, upper] or ["category", …] or {"length": d, "norm": bound}; the label has a positive value, classes, or label_bounds; the budget never changes. For the owner of the table.';

create function dbdp.record_dataset(
  name text, source regclass, declaration json, epsilon float8, delta float8, mode text
) returns void
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import record_dataset

return record_dataset(name, source, declaration, epsilon, delta, mode)

$body$;
comment on function dbdp.record_dataset is 'the part of register_dataset that runs as dbdp_owner';

create function dbdp.close_dataset(name text) returns text
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import close_dataset

return close_dataset(name)

$body$;
comment on function dbdp.close_dataset is 'the part of drop_dataset that runs as dbdp_owner';

create function dbdp.drop_dataset(name text) returns void
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import drop_dataset

return drop_dataset(name)

$body$;
comment on function dbdp.drop_dataset is 'close a dataset; its history stays. For the role that registered it.';

-- byteasend copies a value's bytes as they are. Declared for arrays it shows an array's own bytes
-- (dimensions, null offset, element type, length, lower bound, elements) in one copy, where
-- array_send calls a function for each element: 0.05 against 1.7 microseconds for 54 of them.
create function dbdp.array_bytes(float8[]) returns bytea
language internal immutable strict parallel safe
as 'byteasend';
create function dbdp.array_bytes(float4[]) returns bytea
language internal immutable strict parallel safe
as 'byteasend';
comment on function dbdp.array_bytes(float8[]) is 'the bytes of an array as the server holds them';
comment on function dbdp.array_bytes(float4[]) is 'the bytes of an array as the server holds them';

create function dbdp.charge(dataset text, plan json) returns pg_lsn
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import charge

return charge(dataset, plan)

$body$;
comment on function dbdp.charge is 'charge a planned release before a row is read, for a client that may read the table; returns the WAL position to await';

-- For a key every session must number the rows alike: page by page, whatever its settings.
create function dbdp.shuffle(dataset text, blocks text, options json default '{}') returns void
language plpython3u
set search_path = pg_catalog, pg_temp
set jit = off
set enable_tidscan = on
set synchronize_seqscans = off
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import shuffle

return shuffle(dataset, blocks, options)

$body$;
comment on function dbdp.shuffle is 'fill a table (block_no, block) with the packed rows of a dataset in a secret order; options: cuts, projection, for the order of a key that several sessions share key, first, last, and for Poisson mini-batches, which need a column ends, poisson: probability, steps, apart';

create function dbdp.sgd_transition(state bytea, block bytea, initial bytea) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import sgd_transition

return sgd_transition(state, block, initial)

$body$;

create function dbdp.sgd_terminate(state bytea) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import sgd_terminate

return sgd_terminate(state)

$body$;

-- No combine function: merging models would be another algorithm, with another sensitivity.
create aggregate dbdp.sgd_epoch(block bytea, initial bytea) (
  sfunc = dbdp.sgd_transition,
  stype = bytea,
  finalfunc = dbdp.sgd_terminate,
  parallel = unsafe
);
comment on aggregate dbdp.sgd_epoch(bytea, bytea) is 'one epoch of mini-batch SGD over packed blocks, or the gradient sum and one step where the mini-batch is all rows; call it with order by block_no';

-- The options of a training are written from dbdp.algorithms.Request, so that every door has the same.
create function dbdp.dp_train(
  dataset text,
  epsilon float8,
  delta float8 default 0,
  algorithm text default 'bolt_on',
  loss text default 'logistic',
  huber_width float8 default null,
  positive_weight float8 default 1,
  epochs int default 10,
  batch_size int default null,
  schedule text default null,
  step_size float8 default null,
  exponent float8 default null,
  averaging text default null,
  averaging_interval int default null,
  permutation text default null,
  shards int default 1,
  shard_averaging text default null,
  regularisation float8 default null,
  radius float8 default null,
  mechanism text default null,
  calibration text default null,
  projection_dimension int default null,
  projection_seed int default null,
  clip_norm float8 default null,
  network text default null,
  settings text default null,
  tolerance float8 default null,
  out model bigint,
  out coefficients float8[],
  out intercept float8,
  out intercepts float8[],
  out receipt json
)
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import dp_train

return dp_train(*args)

$body$;
comment on function dbdp.dp_train is
'train a linear model with differential privacy on a registered dataset, and store the release; README.md and docs/privacy.md tell the options';

create function dbdp.dp_logreg(
  dataset text,
  epsilon float8,
  delta float8 default 0,
  algorithm text default 'bolt_on',
  positive_weight float8 default 1,
  epochs int default 10,
  batch_size int default null,
  schedule text default null,
  step_size float8 default null,
  exponent float8 default null,
  averaging text default null,
  averaging_interval int default null,
  permutation text default null,
  shards int default 1,
  shard_averaging text default null,
  regularisation float8 default null,
  radius float8 default null,
  mechanism text default null,
  calibration text default null,
  projection_dimension int default null,
  projection_seed int default null,
  clip_norm float8 default null,
  network text default null,
  settings text default null,
  tolerance float8 default null,
  out model bigint,
  out coefficients float8[],
  out intercept float8,
  out intercepts float8[],
  out receipt json
)
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import dp_logreg

return dp_logreg(*args)

$body$;
comment on function dbdp.dp_logreg is
'dp_train with the logistic loss; a label with classes is learned one against the rest';

create function dbdp.dp_svm(
  dataset text,
  epsilon float8,
  delta float8 default 0,
  algorithm text default 'bolt_on',
  huber_width float8 default null,
  positive_weight float8 default 1,
  epochs int default 10,
  batch_size int default null,
  schedule text default null,
  step_size float8 default null,
  exponent float8 default null,
  averaging text default null,
  averaging_interval int default null,
  permutation text default null,
  shards int default 1,
  shard_averaging text default null,
  regularisation float8 default null,
  radius float8 default null,
  mechanism text default null,
  calibration text default null,
  projection_dimension int default null,
  projection_seed int default null,
  clip_norm float8 default null,
  network text default null,
  settings text default null,
  tolerance float8 default null,
  out model bigint,
  out coefficients float8[],
  out intercept float8,
  out intercepts float8[],
  out receipt json
)
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import dp_svm

return dp_svm(*args)

$body$;
comment on function dbdp.dp_svm is
'dp_train with the Huber SVM loss';

create function dbdp.dp_linreg(
  dataset text,
  epsilon float8,
  delta float8 default 0,
  algorithm text default 'bolt_on',
  huber_width float8 default null,
  epochs int default 10,
  batch_size int default null,
  schedule text default null,
  step_size float8 default null,
  exponent float8 default null,
  averaging text default null,
  averaging_interval int default null,
  permutation text default null,
  shards int default 1,
  shard_averaging text default null,
  regularisation float8 default null,
  radius float8 default null,
  mechanism text default null,
  calibration text default null,
  projection_dimension int default null,
  projection_seed int default null,
  clip_norm float8 default null,
  network text default null,
  settings text default null,
  tolerance float8 default null,
  out model bigint,
  out coefficients float8[],
  out intercept float8,
  out intercepts float8[],
  out receipt json
)
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import dp_linreg

return dp_linreg(*args)

$body$;
comment on function dbdp.dp_linreg is
'dp_train with the Huber regression loss, for a label that is a number';

create function dbdp.dp_explain(
  dataset text,
  epsilon float8,
  delta float8 default 0,
  algorithm text default 'bolt_on',
  loss text default 'logistic',
  huber_width float8 default null,
  positive_weight float8 default 1,
  epochs int default 10,
  batch_size int default null,
  schedule text default null,
  step_size float8 default null,
  exponent float8 default null,
  averaging text default null,
  averaging_interval int default null,
  permutation text default null,
  shards int default 1,
  shard_averaging text default null,
  regularisation float8 default null,
  radius float8 default null,
  mechanism text default null,
  calibration text default null,
  projection_dimension int default null,
  projection_seed int default null,
  clip_norm float8 default null,
  network text default null,
  settings text default null,
  tolerance float8 default null
) returns json
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import dp_explain

return dp_explain(*args)

$body$;
comment on function dbdp.dp_explain is
'plan, sensitivity, noise scale and charge of dp_train with the same arguments; reads no row and spends nothing';

create function dbdp.dp_tune(
  dataset text,
  candidates json,
  epsilon float8,
  delta float8 default 0,
  algorithm text default 'bolt_on',
  loss text default 'logistic',
  huber_width float8 default null,
  positive_weight float8 default 1,
  epochs int default 10,
  batch_size int default null,
  schedule text default null,
  step_size float8 default null,
  exponent float8 default null,
  averaging text default null,
  averaging_interval int default null,
  permutation text default null,
  shards int default 1,
  shard_averaging text default null,
  regularisation float8 default null,
  radius float8 default null,
  mechanism text default null,
  calibration text default null,
  projection_dimension int default null,
  projection_seed int default null,
  clip_norm float8 default null,
  network text default null,
  settings text default null,
  tolerance float8 default null,
  method text default 'disjoint_portions',
  repetitions float8 default null,
  distribution text default null,
  out model bigint,
  out coefficients float8[],
  out intercept float8,
  out intercepts float8[],
  out receipt json
)
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import dp_tune

return dp_tune(*args)

$body$;
comment on function dbdp.dp_tune is
'choose privately among candidates, [{"regularisation": 0.01}, …], and store the chosen model: disjoint_portions (Algorithm 3 of Wu et al. 2017) or random_repetition';

create function dbdp.dp_explain_tuning(
  dataset text,
  candidates json,
  epsilon float8,
  delta float8 default 0,
  algorithm text default 'bolt_on',
  loss text default 'logistic',
  huber_width float8 default null,
  positive_weight float8 default 1,
  epochs int default 10,
  batch_size int default null,
  schedule text default null,
  step_size float8 default null,
  exponent float8 default null,
  averaging text default null,
  averaging_interval int default null,
  permutation text default null,
  shards int default 1,
  shard_averaging text default null,
  regularisation float8 default null,
  radius float8 default null,
  mechanism text default null,
  calibration text default null,
  projection_dimension int default null,
  projection_seed int default null,
  clip_norm float8 default null,
  network text default null,
  settings text default null,
  tolerance float8 default null,
  method text default 'disjoint_portions',
  repetitions float8 default null,
  distribution text default null
) returns json
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import dp_explain_tuning

return dp_explain_tuning(*args)

$body$;
comment on function dbdp.dp_explain_tuning is
'plan and charge of dp_tune with the same arguments; reads no row and spends nothing';

create function dbdp.count_errors_transition(errors bigint, block bytea, models bytea, outputs int) returns bigint
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import count_errors_transition

return count_errors_transition(errors, block, models, outputs)

$body$;

create aggregate dbdp.count_errors(block bytea, models bytea, outputs int) (
  sfunc = dbdp.count_errors_transition,
  stype = bigint,
  initcond = '0',
  parallel = unsafe
);
comment on aggregate dbdp.count_errors(bytea, bytea, int) is
'rows of packed blocks that models, one float8 vector for each output, classify wrongly';

create function dbdp.noisy_transition(state bytea, block bytea, ends bytea, initial bytea) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import noisy_transition

return noisy_transition(state, block, ends, initial)

$body$;

create function dbdp.noisy_terminate(state bytea) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import noisy_terminate

return noisy_terminate(state)

$body$;

create aggregate dbdp.noisy_steps(block bytea, ends bytea, initial bytea) (
  sfunc = dbdp.noisy_transition,
  stype = bytea,
  finalfunc = dbdp.noisy_terminate,
  parallel = unsafe
);
comment on aggregate dbdp.noisy_steps(bytea, bytea, bytea) is 'noisy updates over packed blocks, one for each mini-batch: where ends says so, else for every so many rows; call it with order by block_no';

-- Exact sums: whoever asks adds noise. Sums of parts may be added in any order; the noise covers the rounding.
create function dbdp.gradient_transition(total bytea, block bytea, model bytea, objective text, clip float8) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import gradient_transition

return gradient_transition(total, block, model, objective, clip)

$body$;

create aggregate dbdp.gradient_sum(block bytea, model bytea, objective text, clip float8) (
  sfunc = dbdp.gradient_transition,
  stype = bytea,
  parallel = unsafe
);
comment on aggregate dbdp.gradient_sum(bytea, bytea, text, float8) is
'sum of the clipped gradients of packed rows at a model; vectors are float8, little-endian';

create function dbdp.loss_transition(totals bytea, block bytea, models bytea, objective text, "limit" float8) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import loss_transition

return loss_transition(totals, block, models, objective, limit)

$body$;

create aggregate dbdp.loss_sum(block bytea, models bytea, objective text, "limit" float8) (
  sfunc = dbdp.loss_transition,
  stype = bytea,
  parallel = unsafe
);
comment on aggregate dbdp.loss_sum(bytea, bytea, text, float8) is
'sums of the clipped losses of packed rows, for many candidate models in one pass';

create function dbdp.label_transition(counts bigint[], block bytea, dimension int, classes int) returns bigint[]
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import label_transition

return label_transition(counts, block, dimension, classes)

$body$;

create aggregate dbdp.label_counts(block bytea, dimension int, classes int) (
  sfunc = dbdp.label_transition,
  stype = bigint[],
  parallel = unsafe
);
comment on aggregate dbdp.label_counts(bytea, int, int) is
'rows of packed blocks with each label: -1 and +1 (classes = 1), or 1, 2, …';

create function dbdp.store_release(dataset text, coefficients float8[], intercepts float8[], receipt json) returns json
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import store_release

return store_release(dataset, coefficients, intercepts, receipt)

$body$;
comment on function dbdp.store_release is 'store a model that a client released';

create function dbdp.store_network(dataset text, network json, parameters float8[], receipt json) returns json
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import store_network

return store_network(dataset, network, parameters, receipt)

$body$;
comment on function dbdp.store_network is 'store a network that a client released';

create function dbdp.confusion_transition(counts bytea, block bytea, models bytea, outputs int, network text) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import confusion_transition

return confusion_transition(counts, block, models, outputs, network)

$body$;

create function dbdp.confusion_terminate(counts bytea) returns bigint[]
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import confusion_terminate

return confusion_terminate(counts)

$body$;

create aggregate dbdp.confusion(block bytea, models bytea, outputs int, network text) (
  sfunc = dbdp.confusion_transition,
  stype = bytea,
  finalfunc = dbdp.confusion_terminate,
  parallel = unsafe
);
comment on aggregate dbdp.confusion(bytea, bytea, int, text) is
'rows of packed blocks by true and predicted class: exact counts, to be noised; network is null for linear models';

create function dbdp.dp_confusion(model bigint, dataset text, epsilon float8, delta float8 default 0) returns json
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.server import dp_confusion

return dp_confusion(*args)

$body$;
comment on function dbdp.dp_confusion is
'confusion matrix of a released model on a registered dataset, with noise, charged to its budget; with accuracy, precision and recall of each class';

-- The functions that a query calls for each row set no search_path: a setting for each row would cost
-- as much as the prediction. They qualify all that they name. The wrappers are inlined, so that
-- `description` is looked up for the first row of a session only, in parallel workers too.

create function dbdp.base_type(type oid) returns oid
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
begin atomic
  with recursive base as (
    select t.oid, t.typtype, t.typbasetype from pg_catalog.pg_type as t where t.oid = type
    union all
    select t.oid, t.typtype, t.typbasetype
    from base
    join pg_catalog.pg_type as t on t.oid = base.typbasetype
    where base.typtype = 'd'
  )
  select base.oid from base where base.typtype <> 'd';
end;
comment on function dbdp.base_type is 'the type below a domain, or the type itself';

-- What a scorer is made from: declaration, weights or network, and for rows the columns of their type.
create function dbdp.model_description(model bigint, row_type oid default 0) returns text
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
set extra_float_digits = 1 -- a coefficient is written with all its digits, whatever the session wants
begin atomic
  select pg_catalog.json_build_object(
    'declaration', m.declaration,
    'coefficients', m.coefficients,
    'intercept', m.intercept,
    'intercepts', m.intercepts,
    'network', m.network,
    'parameters', pg_catalog.encode(dbdp.array_bytes(m.parameters), 'base64'),
    'columns', (
      select pg_catalog.json_object_agg(
        a.attname,
        pg_catalog.json_build_array(
          case when b.typtype = 'e' then 'enum ' else '' end || pg_catalog.format_type(b.oid, null),
          a.attlen,
          a.attalign)
        order by a.attnum)
      from pg_catalog.pg_type as t
      join pg_catalog.pg_attribute as a on a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
      join pg_catalog.pg_type as b on b.oid = dbdp.base_type(a.atttypid)
      where t.oid = dbdp.base_type(row_type)
    ),
    'dropped', exists (
      select
      from pg_catalog.pg_type as t
      join pg_catalog.pg_attribute as a on a.attrelid = t.typrelid
      where t.oid = dbdp.base_type(row_type) and a.attnum > 0 and a.attisdropped
    ))::text
  from dbdp.model as m
  where m.id = model;
end;
comment on function dbdp.model_description is 'a released model as predict reads it';

-- As array_bytes: a row's own bytes in one copy, where record_send calls a function for each column.
create function dbdp.row_bytes(record) returns bytea
language internal immutable strict parallel safe
as 'byteasend';
comment on function dbdp.row_bytes is 'the bytes of a row as the server holds them';

create function dbdp.probability(model bigint, row_type oid, features bytea) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
return SD["dbdp"].probability(model, row_type, features)

$body$;

create function dbdp.probability_stored(model bigint, stored bytea, statement float8) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
return SD["dbdp"].probability_stored(model, stored, statement)

$body$;

create function dbdp.predict(model bigint, row_type oid, features bytea) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
return SD["dbdp"].predict(model, row_type, features)

$body$;

create function dbdp.predict_stored(model bigint, stored bytea, statement float8) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
return SD["dbdp"].predict_stored(model, stored, statement)

$body$;

create function dbdp.predict_class(model bigint, row_type oid, features bytea) returns text
language plpython3u
stable strict parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
return SD["dbdp"].predict_class(model, row_type, features)

$body$;

create function dbdp.predict_class_stored(model bigint, stored bytea, statement float8) returns text
language plpython3u
stable strict parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
return SD["dbdp"].predict_class_stored(model, stored, statement)

$body$;

create function dbdp.predict_value(model bigint, row_type oid, features bytea) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
return SD["dbdp"].predict_value(model, row_type, features)

$body$;

create function dbdp.predict_value_stored(model bigint, stored bytea, statement float8) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
return SD["dbdp"].predict_value_stored(model, stored, statement)

$body$;

create function dbdp.knows(model bigint, row_type oid, kind text) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
return SD["dbdp"].knows(model, row_type, kind)

$body$;

create function dbdp.learn(model bigint, row_type oid, description text, kind text) returns boolean
language plpython3u
stable parallel safe cost 300
as $body$
if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    if dbdp.__version__ != "0.1.0":
        plpy.error(
            f"extension dbdp is 0.1.0, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    dbdp.scoring.forget()  # a function that is new may belong to a new extension, with models of its own
    SD["dbdp"] = dbdp.scoring
from dbdp.scoring import learn

return learn(model, row_type, description, kind)

$body$;

create function dbdp.predict(model bigint, features float8[]) returns boolean
language sql
stable parallel safe
return coalesce(
  dbdp.predict(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'binary') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'binary') then dbdp.predict(model, 0::oid, dbdp.array_bytes(features))
  end);

create function dbdp.predict_probability(model bigint, features float8[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.probability(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'binary') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'binary') then dbdp.probability(model, 0::oid, dbdp.array_bytes(features))
  end);

create function dbdp.predict_class(model bigint, features float8[]) returns text
language sql
stable parallel safe
return coalesce(
  dbdp.predict_class(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'classes') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'classes') then dbdp.predict_class(model, 0::oid, dbdp.array_bytes(features))
  end);

create function dbdp.predict_value(model bigint, features float8[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.predict_value(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'real') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'real') then dbdp.predict_value(model, 0::oid, dbdp.array_bytes(features))
  end);

create function dbdp.predict(model bigint, features float4[]) returns boolean
language sql
stable parallel safe
return coalesce(
  dbdp.predict(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'binary') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'binary') then dbdp.predict(model, 0::oid, dbdp.array_bytes(features))
  end);

create function dbdp.predict_probability(model bigint, features float4[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.probability(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'binary') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'binary') then dbdp.probability(model, 0::oid, dbdp.array_bytes(features))
  end);

create function dbdp.predict_class(model bigint, features float4[]) returns text
language sql
stable parallel safe
return coalesce(
  dbdp.predict_class(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'classes') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'classes') then dbdp.predict_class(model, 0::oid, dbdp.array_bytes(features))
  end);

create function dbdp.predict_value(model bigint, features float4[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.predict_value(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'real') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'real') then dbdp.predict_value(model, 0::oid, dbdp.array_bytes(features))
  end);

-- Arrays as people write them: array[1, 2.5]
create function dbdp.predict(model bigint, features int4[]) returns boolean
language sql
stable parallel safe
return dbdp.predict(model, features::float8[]);

create function dbdp.predict_probability(model bigint, features int4[]) returns float8
language sql
stable parallel safe
return dbdp.predict_probability(model, features::float8[]);

create function dbdp.predict_class(model bigint, features int4[]) returns text
language sql
stable parallel safe
return dbdp.predict_class(model, features::float8[]);

create function dbdp.predict_value(model bigint, features int4[]) returns float8
language sql
stable parallel safe
return dbdp.predict_value(model, features::float8[]);

create function dbdp.predict(model bigint, features numeric[]) returns boolean
language sql
stable parallel safe
return dbdp.predict(model, features::float8[]);

create function dbdp.predict_probability(model bigint, features numeric[]) returns float8
language sql
stable parallel safe
return dbdp.predict_probability(model, features::float8[]);

create function dbdp.predict_class(model bigint, features numeric[]) returns text
language sql
stable parallel safe
return dbdp.predict_class(model, features::float8[]);

create function dbdp.predict_value(model bigint, features numeric[]) returns float8
language sql
stable parallel safe
return dbdp.predict_value(model, features::float8[]);

create function dbdp.predict(model bigint, features anyelement) returns boolean
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.predict_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.predict(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features)),
  case
    when dbdp.knows(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'binary') then null
    when dbdp.learn(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp.model_description(model, pg_catalog.pg_typeof(features)::pg_catalog.oid), 'binary') then dbdp.predict(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features))
  end)
$body$;

create function dbdp.predict_probability(model bigint, features anyelement) returns float8
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.probability_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.probability(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features)),
  case
    when dbdp.knows(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'binary') then null
    when dbdp.learn(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp.model_description(model, pg_catalog.pg_typeof(features)::pg_catalog.oid), 'binary') then dbdp.probability(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features))
  end)
$body$;

create function dbdp.predict_class(model bigint, features anyelement) returns text
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.predict_class_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.predict_class(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features)),
  case
    when dbdp.knows(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'classes') then null
    when dbdp.learn(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp.model_description(model, pg_catalog.pg_typeof(features)::pg_catalog.oid), 'classes') then dbdp.predict_class(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features))
  end)
$body$;

create function dbdp.predict_value(model bigint, features anyelement) returns float8
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.predict_value_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.predict_value(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features)),
  case
    when dbdp.knows(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'real') then null
    when dbdp.learn(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp.model_description(model, pg_catalog.pg_typeof(features)::pg_catalog.oid), 'real') then dbdp.predict_value(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features))
  end)
$body$;

comment on function dbdp.predict(bigint, float8[]) is 'whether a released model takes the row for a positive one; null for a null or not finite feature';
comment on function dbdp.predict_probability(bigint, float8[]) is 'the probability of the positive class by a released model; null for a null or not finite feature';
comment on function dbdp.predict_class(bigint, float8[]) is 'the class that a released model of a label with classes takes the row for; null for a null or not finite feature';
comment on function dbdp.predict_value(bigint, float8[]) is 'the number that a released model of a label with bounds predicts; null for a null or not finite feature';
comment on function dbdp.predict(bigint, float4[]) is 'whether a released model takes the row for a positive one; null for a null or not finite feature';
comment on function dbdp.predict_probability(bigint, float4[]) is 'the probability of the positive class by a released model; null for a null or not finite feature';
comment on function dbdp.predict_class(bigint, float4[]) is 'the class that a released model of a label with classes takes the row for; null for a null or not finite feature';
comment on function dbdp.predict_value(bigint, float4[]) is 'the number that a released model of a label with bounds predicts; null for a null or not finite feature';
comment on function dbdp.predict(bigint, int4[]) is 'whether a released model takes the row for a positive one; null for a null or not finite feature';
comment on function dbdp.predict_probability(bigint, int4[]) is 'the probability of the positive class by a released model; null for a null or not finite feature';
comment on function dbdp.predict_class(bigint, int4[]) is 'the class that a released model of a label with classes takes the row for; null for a null or not finite feature';
comment on function dbdp.predict_value(bigint, int4[]) is 'the number that a released model of a label with bounds predicts; null for a null or not finite feature';
comment on function dbdp.predict(bigint, numeric[]) is 'whether a released model takes the row for a positive one; null for a null or not finite feature';
comment on function dbdp.predict_probability(bigint, numeric[]) is 'the probability of the positive class by a released model; null for a null or not finite feature';
comment on function dbdp.predict_class(bigint, numeric[]) is 'the class that a released model of a label with classes takes the row for; null for a null or not finite feature';
comment on function dbdp.predict_value(bigint, numeric[]) is 'the number that a released model of a label with bounds predicts; null for a null or not finite feature';
comment on function dbdp.predict(bigint, anyelement) is 'whether a released model takes a row of any table with its columns for a positive one';
comment on function dbdp.predict_probability(bigint, anyelement) is 'the probability of the positive class for a row of any table with the model''s columns';
comment on function dbdp.predict_class(bigint, anyelement) is 'the class that a released model takes a row of any table with its columns for';
comment on function dbdp.predict_value(bigint, anyelement) is 'the number that a released model predicts for a row of any table with its columns';

revoke all on all functions in schema dbdp from public;
revoke all on all tables in schema dbdp from public;

-- What runs with dbdp_owner's rights, and what it reads and writes.
do $owners$
declare
  object text;
begin
  foreach object in array array[
    'function dbdp.record_dataset', 'function dbdp.close_dataset', 'function dbdp.charge',
    'function dbdp.dp_train', 'function dbdp.dp_logreg', 'function dbdp.dp_svm', 'function dbdp.dp_linreg',
    'function dbdp.dp_explain', 'function dbdp.dp_tune', 'function dbdp.dp_explain_tuning', 'function dbdp.store_release',
    'function dbdp.store_network', 'function dbdp.dp_confusion',
    'table dbdp.dataset', 'table dbdp.ledger', 'table dbdp.model'
  ] loop
    execute 'alter ' || object || ' owner to dbdp_owner';
  end loop;
end
$owners$;
grant execute on function dbdp.shuffle, dbdp.sgd_transition, dbdp.sgd_terminate to dbdp_owner;
grant execute on function dbdp.array_bytes(float8[]), dbdp.array_bytes(float4[]) to dbdp_owner;
grant execute on function
  dbdp.sgd_epoch(bytea, bytea), dbdp.count_errors(bytea, bytea, int), dbdp.count_errors_transition,
  dbdp.noisy_transition, dbdp.noisy_terminate, dbdp.noisy_steps(bytea, bytea, bytea),
  dbdp.gradient_transition, dbdp.gradient_sum(bytea, bytea, text, float8),
  dbdp.loss_transition, dbdp.loss_sum(bytea, bytea, text, float8),
  dbdp.label_transition, dbdp.label_counts(bytea, int, int),
  dbdp.confusion_transition, dbdp.confusion_terminate, dbdp.confusion(bytea, bytea, int, text)
to dbdp_owner;

grant execute on function
  dbdp.dp_train, dbdp.dp_logreg, dbdp.dp_svm, dbdp.dp_linreg, dbdp.dp_tune, dbdp.dp_explain, dbdp.dp_explain_tuning,
  dbdp.dp_confusion
to dbdp_analyst;
grant execute on function
  dbdp.predict(bigint, float8[]), dbdp.predict(bigint, float4[]), dbdp.predict(bigint, int4[]),
  dbdp.predict(bigint, numeric[]), dbdp.predict(bigint, anyelement),
  dbdp.predict_probability(bigint, float8[]), dbdp.predict_probability(bigint, float4[]),
  dbdp.predict_probability(bigint, int4[]), dbdp.predict_probability(bigint, numeric[]),
  dbdp.predict_probability(bigint, anyelement),
  dbdp.predict_class(bigint, float8[]), dbdp.predict_class(bigint, float4[]), dbdp.predict_class(bigint, int4[]),
  dbdp.predict_class(bigint, numeric[]), dbdp.predict_class(bigint, anyelement),
  dbdp.predict_value(bigint, float8[]), dbdp.predict_value(bigint, float4[]), dbdp.predict_value(bigint, int4[]),
  dbdp.predict_value(bigint, numeric[]), dbdp.predict_value(bigint, anyelement),
  dbdp.predict(bigint, oid, bytea), dbdp.predict_stored, dbdp.probability, dbdp.probability_stored,
  dbdp.predict_class(bigint, oid, bytea), dbdp.predict_class_stored,
  dbdp.predict_value(bigint, oid, bytea), dbdp.predict_value_stored,
  dbdp.knows, dbdp.learn, dbdp.row_bytes, dbdp.base_type, dbdp.model_description,
  dbdp.array_bytes(float8[]), dbdp.array_bytes(float4[])
to dbdp_analyst;
grant select on dbdp.dataset, dbdp.model, dbdp.datasets, dbdp.models to dbdp_analyst;

grant execute on function
  dbdp.register_dataset, dbdp.record_dataset, dbdp.drop_dataset, dbdp.close_dataset, dbdp.charge,
  dbdp.store_release, dbdp.store_network,
  dbdp.shuffle, dbdp.sgd_transition, dbdp.sgd_terminate, dbdp.sgd_epoch(bytea, bytea),
  dbdp.count_errors(bytea, bytea, int), dbdp.count_errors_transition,
  dbdp.noisy_transition, dbdp.noisy_terminate, dbdp.noisy_steps(bytea, bytea, bytea),
  dbdp.gradient_transition, dbdp.gradient_sum(bytea, bytea, text, float8),
  dbdp.loss_transition, dbdp.loss_sum(bytea, bytea, text, float8),
  dbdp.label_transition, dbdp.label_counts(bytea, int, int)
to dbdp_data_owner;
grant select on dbdp.ledger to dbdp_data_owner;
