create or replace function dbdp.dp_describe(
  dataset text, epsilon float8, delta float8
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

-- With the caller's rights: it reads the release alone.
create or replace function dbdp.statistic_describe(
  statistic bigint
) returns table (column_name text, value text, count float8, count_noise float8, nulls float8, share float8, share_noise float8, mean float8, mean_noise float8, sd float8, sd_noise float8, q25 float8, q50 float8, q75 float8, outside float8, outside_noise float8)
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@refusing statistic_functions.statistic_describe@
$body$;
comment on function dbdp.statistic_describe is 'the figures of a released describe, by its number in dbdp.statistics: free';
