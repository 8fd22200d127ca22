create or replace function dbdp_internal.tally_transition(counts bytea, block bytea, models bytea, description text) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.tally_transition@
$body$;
comment on function dbdp_internal.tally_transition is 'internal: transition of tally';

create or replace function dbdp_internal.tally_terminate(counts bytea) returns bigint[]
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.tally_terminate@
$body$;
comment on function dbdp_internal.tally_terminate is 'internal: final function of tally: the counts in a state';

create or replace aggregate dbdp_internal.tally(block bytea, models bytea, description text) (
  sfunc = dbdp_internal.tally_transition,
  stype = bytea,
  finalfunc = dbdp_internal.tally_terminate,
  parallel = unsafe
);
comment on aggregate dbdp_internal.tally(bytea, bytea, text) is
'internal: exact integer sums over packed rows, by their labels and the scores of models, to which the caller adds noise. dbdp/learning/counts/tallies.py has the kinds';

@each type: bigint; text do@
create or replace function dbdp.dp_score(
  model @type@,
  dataset text,
  metric text,
  epsilon float8,
  delta float8 default 0,
  bins int default 50,
  positive text default null,
  cohort jsonb default null
) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_score@
$body$;
@end@
comment on function dbdp.dp_score(bigint, text, text, float8, float8, int, text, jsonb) is
'a noisy score of a released model on a registered dataset, charged to its budget. metric is accuracy, confusion, auc or calibration (both from one histogram of bins), mean_absolute_error, mean_squared_error, rmse or r2 (both from one table of residuals). See docs/evaluation.md';
comment on function dbdp.dp_score(text, text, text, float8, float8, int, text, jsonb) is
'dp_score of a model by its name, or by name@version';

@each type: bigint; text do@
create or replace function dbdp.evaluate(
  model @type@,
  dataset text,
  epsilon float8,
  delta float8 default 0,
  bins int default 20,
  threshold float8 default 0.5,
  cohort jsonb default null
) returns table (figure text, value float8, plus_minus float8)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.evaluate@
$body$;
@end@
comment on function dbdp.evaluate(bigint, text, float8, float8, int, float8, jsonb) is
'figures of a released model on a registered dataset, for one charge, listed in dbdp.history: accuracy, fraction of the majority class and, for a binary label, AUC, and precision, recall and F1 of the positive class at the threshold; for a number RMSE and R². 95 % of the time, noise moves each by less than plus_minus. cohort names conditions that rows must meet, as in dp_describe';
comment on function dbdp.evaluate(text, text, float8, float8, int, float8, jsonb) is
'evaluate a model by its name, or by name@version';

create or replace function dbdp.dp_explain_score(
  dataset text,
  metric text,
  epsilon float8,
  delta float8 default 0,
  bins int default 50,
  positive text default null,
  cohort jsonb default null
) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_explain_score@
$body$;
comment on function dbdp.dp_explain_score is
'plan, noise and charge of dp_score with the same arguments. metric may be evaluation, bounds, categories, class_balance, summary or describe too. Reads no row and spends nothing';

create or replace function dbdp.dp_bounds(
  dataset text, column_name text, epsilon float8, delta float8 default 0, beta float8 default 0.001
) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_bounds@
$body$;
comment on function dbdp.dp_bounds is
'noisy bounds of a column of a registered table, charged to its budget: of numbers, of dates and timestamps as days since 2000-01-01, or of the bytes of texts. With probability beta or less they are wider than the numbers. For the role that registered it.';

create or replace function dbdp.dp_categories(
  dataset text, column_name text, epsilon float8, delta float8
) returns table (value text, count bigint, plus_minus bigint)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing statistic_functions.dp_categories@
$body$;
comment on function dbdp.dp_categories is
'the values of a column of a registered table that many rows have, with noisy counts, charged to its budget; then the counts of (other), which are long texts, and of (null). A value whose noisy count is below the threshold is not shown. dp_explain_score with the metric categories has the threshold. For the role that registered the table';

create or replace function dbdp.dp_class_balance(dataset text, epsilon float8, delta float8 default 0) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_class_balance@
$body$;
comment on function dbdp.dp_class_balance is
'noisy number of rows of each class of a registered dataset, charged to its budget, and the positive_weight that balances a binary label';

create or replace function dbdp.dp_summarize(
  dataset text, epsilon float8, delta float8, bins json default null, cohort jsonb default null, out summary bigint, out coordinates int, out noise_scale float8
)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_summarize@
$body$;
comment on function dbdp.dp_summarize is
'charge once, and release a noisy second moment of the rows and labels of a registered dataset. Results that summary_linreg, summary_pca, summary_correlations and training with summary => compute from it are free. bins divides numbers, for tables by them: a number of bins for each, or an object from columns to numbers. cohort names conditions that rows must meet, as in dp_describe. See docs/guides/summaries.md';

-- With the caller's rights: they read the release alone.
create or replace function dbdp.summary_linreg(
  summary bigint, target text, features text[] default null, regularisation float8 default null
) returns json
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.summary_linreg@
$body$;
comment on function dbdp.summary_linreg is
'least squares of a column by others, in their units, from a released summary, for free. features are all other columns by default, and regularisation follows from the noise';

create or replace function dbdp.summary_pca(summary bigint, components int default 2) returns json
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.summary_pca@
$body$;
comment on function dbdp.summary_pca is
'principal components of the features, each scaled to its declared bounds, from a released summary: free';

create or replace function dbdp.summary_correlations(summary bigint) returns json
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.summary_correlations@
$body$;
comment on function dbdp.summary_correlations is
'correlations of all features and the label, from a released summary, for free. null if the noise hides the spread of a column';

create or replace function dbdp.summary_describe(summary bigint) returns table (column_name text, value text, count bigint, count_noise bigint, mean float8, mean_noise float8, sd float8, sd_noise float8, remark text)
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@refusing statistic_functions.summary_describe@
$body$;
comment on function dbdp.summary_describe is
'number of rows, counts of categories and bins, means and standard deviations of each column, from a released summary: free. *_noise is half the 95 % interval of the noise, and null where noise hides a figure';

create or replace function dbdp.summary_table(summary bigint, by text[], mean text default null) returns table (groups text[], figure text, value float8, plus_minus float8)
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@refusing statistic_functions.summary_table@
$body$;
comment on function dbdp.summary_table is
'number of rows for each group of one or two columns with categories or bins, or the mean of a column for each group of one, from a released summary: free';

create or replace function dbdp.summary_rows(summary bigint, rows int default null) returns json
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@refusing statistic_functions.summary_rows@
$body$;
comment on function dbdp.summary_rows is
'synthetic rows from a released summary, for free, with the names of its columns: json_populate_recordset(null::patients, dbdp.summary_rows(2)) has their types. For developing and exploring, not for results. See docs/guides/summaries.md';
