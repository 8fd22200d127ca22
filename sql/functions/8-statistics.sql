create or replace function dbdp.dp_describe(
  dataset text, epsilon float8, delta float8, cohort jsonb default null
) returns table (column_name text, value text, count float8, count_noise float8, nulls float8, share float8, share_noise float8, mean float8, mean_noise float8, sd float8, sd_noise float8, q25 float8, q50 float8, q75 float8, outside float8, outside_noise float8, statistic bigint)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing statistic_functions.dp_describe@
$body$;
comment on function dbdp.dp_describe is
'describe all declared columns of a registered dataset, and its label, for one charge: values, NULLs, mean, standard deviation and quartiles of numbers, and the values of categories. 95 % of the time, noise moves each figure by less than its …_noise. dbdp.statistic_describe(statistic) shows the figures again, for free. See docs/guides/statistics.md';

create or replace function dbdp.dp_table(
  dataset text, by text[], epsilon float8, delta float8 default 0, measures text[] default '{count}',
  cohort jsonb default null, margins boolean default false, bins int default 10
) returns table (groups text[], figure text, value float8, plus_minus float8, statistic bigint)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing statistic_functions.dp_table@
$body$;
comment on function dbdp.dp_table is
'count the rows of each group of a registered dataset, by declared columns, and average numbers in it, for one charge. measures are count and mean COLUMN. margins adds all totals, which agree. bins are those of a number without declared bins. 95 % of the time, noise moves each figure by less than plus_minus. See docs/guides/statistics.md';

create or replace function dbdp.dp_explain_table(
  dataset text, by text[], epsilon float8, delta float8 default 0, measures text[] default '{count}',
  cohort jsonb default null, margins boolean default false, bins int default 10
) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing statistic_functions.dp_explain_table@
$body$;
comment on function dbdp.dp_explain_table is
'plan, noise and charge of dp_table with the same arguments. Reads no row and spends nothing';

create or replace function dbdp.dp_quantiles(
  dataset text, column_name text, quantiles float8[], epsilon float8, delta float8, cohort jsonb default null
) returns table (quantile float8, value float8, lower float8, upper float8, statistic bigint)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing statistic_functions.dp_quantiles@
$body$;
comment on function dbdp.dp_quantiles is
'quantiles of a number of a registered dataset, with the 95 % interval of their noise. One charge covers all of them: dbdp.statistic_quantiles(statistic, quantiles) shows others for free. See docs/guides/statistics.md';

create or replace function dbdp.dp_explain_quantiles(
  dataset text, column_name text, epsilon float8, delta float8, cohort jsonb default null
) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing statistic_functions.dp_explain_quantiles@
$body$;
comment on function dbdp.dp_explain_quantiles is
'plan, noise and charge of dp_quantiles with the same arguments. Reads no row and spends nothing';

-- With the caller's rights: they read the release alone.
create or replace function dbdp.statistic_describe(
  statistic bigint
) returns table (column_name text, value text, count float8, count_noise float8, nulls float8, share float8, share_noise float8, mean float8, mean_noise float8, sd float8, sd_noise float8, q25 float8, q50 float8, q75 float8, outside float8, outside_noise float8)
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@refusing statistic_functions.statistic_describe@
$body$;
comment on function dbdp.statistic_describe is
'the figures of a released describe, by its number in dbdp.statistics: free';

create or replace function dbdp.statistic_table(
  statistic bigint
) returns table (groups text[], figure text, value float8, plus_minus float8)
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@refusing statistic_functions.statistic_table@
$body$;
comment on function dbdp.statistic_table is
'the figures of released tables, by their number in dbdp.statistics: free';

create or replace function dbdp.statistic_quantiles(
  statistic bigint, quantiles float8[], column_name text default null
) returns table (quantile float8, value float8, lower float8, upper float8)
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@refusing statistic_functions.statistic_quantiles@
$body$;
comment on function dbdp.statistic_quantiles is
'any quantiles from a released distribution, or of a column of a released describe, by its number in dbdp.statistics: free';
