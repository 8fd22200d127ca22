create or replace function dbdp_internal.record_outcome(ledger_id bigint, outcome text, detail text default null) returns void
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.record_outcome@
$body$;
comment on function dbdp_internal.record_outcome is 'internal: record the outcome of a client''s charge, failed or shown. store_release records released';

create or replace function dbdp.budget(
  dataset text,
  release_delta float8 default null,
  release_epsilon float8 default null,
  out left_share float8,
  out releases_left bigint,
  out of_epsilon float8,
  out epsilon_left float8,
  out epsilon float8,
  out delta float8
)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.budget@
$body$;
comment on function dbdp.budget is
'the remaining budget of a dataset: as a fraction, as the number of further releases of release_epsilon and release_delta that fit, with noise at the end (default: 10 % of the budget''s epsilon and delta), and as the largest epsilon of a single one at that delta. dbdp.budget_details has the spending too';

create or replace function dbdp.budget_details(
  dataset text,
  release_delta float8 default null,
  release_epsilon float8 default null,
  out left_share float8,
  out releases_left bigint,
  out of_epsilon float8,
  out of_delta float8,
  out epsilon_left float8,
  out epsilon float8,
  out delta float8,
  out releases bigint,
  out registrations int,
  out total_epsilon float8,
  out total_delta float8,
  out mode text,
  out rdp_order float8,
  out charge_limit numeric,
  out charged numeric,
  out leak_limit numeric,
  out leaked numeric,
  out recorded numeric,
  out unrecorded numeric
)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.budget@
$body$;
comment on function dbdp.budget_details is
'the remaining and the spent budget of a dataset. releases_left is the number of further releases of release_epsilon and release_delta that fit, with noise at the end (default: 10 % of the budget''s epsilon and delta). epsilon_left is the largest epsilon of a single one at that delta. total_epsilon and total_delta are the guarantee of all registrations of the table together';

create or replace function dbdp_internal.dataset_spent(dataset_id int, out spent_share float8, out unrecorded_share float8)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.dataset_spent@
$body$;
comment on function dbdp_internal.dataset_spent is 'internal: the fractions of a budget that were spent, and that were spent without a row in the ledger. Null if an odometer is missing, or for roles that do not see the dataset in dbdp.stat_datasets';

create or replace function dbdp.check_ledger(
  out dataset text,
  out period int,
  out charged numeric,
  out recorded numeric,
  out unrecorded numeric,
  out ok boolean,
  out finding text
) returns setof record
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.check_ledger@
$body$;
comment on function dbdp.check_ledger is
'compare the odometers with the ledger, and the limits with the guarantee, for each registration of this role. finding describes the fault';
