create or replace function dbdp.register_dataset(
@registration@
) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.register_dataset@
$body$;
comment on function dbdp.register_dataset is
'register a table as a dataset. features maps a column to [lower, upper], {"bounds": [lower, upper], "bins": 8, "scale": "asinh"}, ["category", …] or {"length": d, "norm": bound}. The label has a positive value, classes, or label_bounds. All rows with one value of column unit are protected together, and up to max_rows of them are read. public_columns are public keys to group by. With a capacity up to that many rows or units are read, and their number is private and may change. Without one it is public and fixed. The budget, epsilon and delta or rho and delta, never changes. rdp_order is the order of mode renyi, by default the one at which Gaussian noise costs least. For the owner of the table.';

create or replace function dbdp_internal.place_dataset(dataset text, place text, digest text) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.place_dataset@
$body$;
comment on function dbdp_internal.place_dataset is 'internal: state the place of the rows of a dataset with an empty table, in the transaction that registered it with their number as its capacity. The number is public from then on';

create or replace function dbdp.drop_dataset(name text) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.drop_dataset@
$body$;
comment on function dbdp.drop_dataset is 'close a dataset. Its history and its models stay. For the role that registered it.';

create or replace function dbdp.renew_budget(
  dataset text, reason text, epsilon float8 default null, delta float8 default null, capacity bigint default null
) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.renew_budget@
$body$;
comment on function dbdp.renew_budget is
'end the budget of a dataset and begin a new one, with the same epsilon, delta and capacity by default. The guarantees of both add up. For the role that registered it.';

create or replace function dbdp.raise_capacity(dataset text, reason text, capacity bigint) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.raise_capacity@
$body$;
comment on function dbdp.raise_capacity is
'raise the largest number of rows, or units, of a dataset that is read. Its budget, grants and models stay. If its number of rows was public and fixed, the dataset has a capacity from then on. For the role that registered it.';

create or replace function dbdp.answer_at_multiples(dataset text, reason text, seconds int) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.answer_at_multiples@
$body$;
comment on function dbdp.answer_at_multiples is
'make the server return results computed from the rows, and failures, at multiples of this many seconds after the charge, so the time does not depend on the rows. null returns them at once. For the role that registered it.';

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
@refusing functions.redeclare@
$body$;
comment on function dbdp.redeclare is
'correct the declaration of a dataset: bounds, categories, classes. Its budget and its released models do not change. For the role that registered it.';
