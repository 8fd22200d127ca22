create or replace function dbdp.register_dataset(
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
  label_bounds float8[] default null,
  unit text default null,
  max_rows int default null,
  public_columns text[] default null,
  rho float8 default null
) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython register_dataset@
$body$;
comment on function dbdp.register_dataset is
'declare a table once: features are column -> [lower, upper] or {"bounds": [lower, upper], "bins": 8, "scale": "asinh"} or ["category", …] or {"length": d, "norm": bound}; the label has a positive value, classes, or label_bounds; all rows with one value of column unit are protected together, of which at most max_rows are read; public_columns hold public keys, to group by; the budget, epsilon and delta or rho and delta, never changes. For the owner of the table.';

create or replace function dbdp.drop_dataset(name text) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython drop_dataset@
$body$;
comment on function dbdp.drop_dataset is 'close a dataset; its history stays. For the role that registered it.';

create or replace function dbdp.renew_budget(
  dataset text, reason text, epsilon float8 default null, delta float8 default null
) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython renew_budget@
$body$;
comment on function dbdp.renew_budget is
'end the budget of a dataset and begin a new one, of the same size unless said; what is promised over both adds up. For the role that registered it.';

create or replace function dbdp.answer_at_multiples(dataset text, reason text, seconds int) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython answer_at_multiples@
$body$;
comment on function dbdp.answer_at_multiples is
'have the server answer what it computes of the rows at whole multiples of so many seconds after the charge, failures too, so that the time does not depend on the rows; null answers at once. For the role that registered it.';

create or replace function dbdp.redeclare(
  dataset text,
  reason text,
  features json default null,
  positive text default null,
  negative text default null,
  classes text[] default null,
  label_bounds float8[] default null
) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython redeclare@
$body$;
comment on function dbdp.redeclare is
'correct what was declared of a dataset: bounds, categories, classes; its budget and its released models stay as they are. For the role that registered it.';
