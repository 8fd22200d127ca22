-- byteasend copies a value's bytes as they are. Declared for arrays it returns an array's own bytes
-- (dimensions, null offset, element type, length, lower bound, elements) in one copy, where
-- array_send calls a function for each element: 0.05 instead of 1.7 microseconds for 54 of them.
create or replace function dbdp_internal.array_bytes(float8[]) returns bytea
language internal immutable strict parallel safe
as 'byteasend';
create or replace function dbdp_internal.array_bytes(float4[]) returns bytea
language internal immutable strict parallel safe
as 'byteasend';
comment on function dbdp_internal.array_bytes(float8[]) is 'internal: the bytes of an array as the server stores them';
comment on function dbdp_internal.array_bytes(float4[]) is 'internal: the bytes of an array as the server stores them';

-- The length of these bytes, without unpacking the array or fetching it from out-of-line storage.
create or replace function dbdp_internal.array_size(float8[]) returns int
language internal immutable strict parallel safe
as 'byteaoctetlen';
create or replace function dbdp_internal.array_size(float4[]) returns int
language internal immutable strict parallel safe
as 'byteaoctetlen';
comment on function dbdp_internal.array_size(float8[]) is 'internal: the number of bytes that array_bytes returns';
comment on function dbdp_internal.array_size(float4[]) is 'internal: the number of bytes that array_bytes returns';

create or replace function dbdp_internal.check_rows(dataset text) returns void
language plpython3u
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@plpython functions.check_rows@
$body$;
comment on function dbdp_internal.check_rows is 'internal: raise an error unless the table still has the registered number of rows, or of units. For a client that may read it';

-- Stable, so that all queries within it see one snapshot.
create or replace function dbdp_internal.resume(name text) returns setof bytea
language plpython3u stable
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.resume@
$body$;
comment on function dbdp_internal.resume is 'internal: continue a read that dbdp suspended, in one snapshot';

-- A query that reads a table passes on its rows by this function, so that how often it is asked does not tell how many
-- they are. It runs as the table's owner.
create or replace function dbdp_internal.receive(name text, piece bytea) returns bool
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.receive@
$body$;
comment on function dbdp_internal.receive is 'internal: pass on what a query of dbdp reads';

create or replace function dbdp_internal.charge(dataset text, plan json, out ledger_id bigint, out wal_position pg_lsn)
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.charge@
$body$;
comment on function dbdp_internal.charge is 'internal: charge a planned release before a row is read, for a client that may read the table. Returns the id in the ledger, and the WAL position to wait for';

create or replace function dbdp_internal.shuffle(dataset text, blocks text, options json default '{}') returns void
language plpython3u
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
set jit = off
as $body$
@plpython functions.shuffle@
$body$;
comment on function dbdp_internal.shuffle is 'internal: fill a table (block_no, block) with the packed rows of a dataset in a secret order. Options: held leaves them with the session, in memory or in a file, with blocks that refer to them. secret_order is false for rows as they are read. cuts and projection. key, first and last are for an order that several sessions share. poisson is for mini-batches, with probability, steps, size to which each is padded, apart, and together, the rows of all of them instead of padding each. progress reports to the client';

create or replace function dbdp_internal.check_room(rows bigint, dimension int, staged bigint, sessions int) returns void
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.check_room@
$body$;
comment on function dbdp_internal.check_room is 'internal: raise an error unless that number of sessions may each have the files that the given rows of a dimension take when they are packed, by temp_file_limit and the free space of the disk; staged is the size of a file of groups'' records';

create or replace function dbdp_internal.forget_blocks(blocks text) returns void
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.forget_blocks@
$body$;
comment on function dbdp_internal.forget_blocks is 'internal: free the packed rows that this session holds in memory for a table of blocks, at the end of a training run';

create or replace function dbdp_internal.rows_by_pages(dataset text, out pages bigint, out rows bigint[])
language plpython3u
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
set jit = off
as $body$
@plpython functions.rows_by_pages@
$body$;
comment on function dbdp_internal.rows_by_pages is 'internal: a number of pages, and how many rows each group of pages of a dataset''s table have, for a client that may read it and trains on Spark';

create or replace function dbdp_internal.records_on_pages(dataset text, first bigint, last bigint) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
set jit = off
as $body$
@plpython functions.records_on_pages@
$body$;
comment on function dbdp_internal.records_on_pages is 'internal: the raw records of the rows on some pages of a dataset''s table, in the order of storage, read as the table''s owner for a worker of Spark, if its role may read it';

create or replace function dbdp_internal.sgd_transition(state bytea, block bytea, initial bytea) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.sgd_transition@
$body$;
comment on function dbdp_internal.sgd_transition is 'internal: transition of sgd_epoch: the state after one more block';

create or replace function dbdp_internal.sgd_terminate(state bytea) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.sgd_terminate@
$body$;
comment on function dbdp_internal.sgd_terminate is 'internal: final function of sgd_epoch: the model in a state';

-- No combine function: merging models would be another algorithm, with another sensitivity.
create or replace aggregate dbdp_internal.sgd_epoch(block bytea, initial bytea) (
  sfunc = dbdp_internal.sgd_transition,
  stype = bytea,
  finalfunc = dbdp_internal.sgd_terminate,
  parallel = unsafe
);
comment on aggregate dbdp_internal.sgd_epoch(bytea, bytea) is 'internal: one epoch of mini-batch SGD over packed blocks, or the gradient sum and one step if the mini-batch is all rows. Call it with order by block_no';

-- The options of a training are generated from dbdp.algorithms.Request, so that every interface has the same.
create or replace function dbdp.dp_train(
  dataset text,
@options@
) returns dbdp.released
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_train@
$body$;
comment on function dbdp.dp_train is
'train a linear model or a network with differential privacy on a registered dataset, and store the release. dbdp.weights, dbdp.receipt and dbdp.models show it. docs/reference/options.md describes the options';

create or replace function dbdp.dp_logreg(
  dataset text,
@options without loss huber_width@
) returns dbdp.released
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_logreg@
$body$;
comment on function dbdp.dp_logreg is
'dp_train with the logistic loss. A label with classes is learned one against the rest';

create or replace function dbdp.dp_svm(
  dataset text,
@options without loss@
) returns dbdp.released
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_svm@
$body$;
comment on function dbdp.dp_svm is
'dp_train with the Huber SVM loss';

create or replace function dbdp.dp_linreg(
  dataset text,
@options without positive_weight@
) returns dbdp.released
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_linreg@
$body$;
comment on function dbdp.dp_linreg is
'dp_train for a label that is a number: least squares, or loss => ''huber_regression''';

create or replace function dbdp.dp_explain(
  dataset text,
@options@
) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_explain@
$body$;
comment on function dbdp.dp_explain is
'plan, sensitivity, noise scale and charge of dp_train with the same arguments. Reads no row and spends nothing';

create or replace function dbdp.dp_tune(
  dataset text,
  candidates json,
@options@,
  method text default null,
  repetitions float8 default null,
  distribution text default null,
  selection_epsilon float8 default null
) returns dbdp.released
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_tune@
$body$;
comment on function dbdp.dp_tune is
'choose privately among candidates, [{"settings": {"clip": 0.2}}, …], and store the chosen model: shared_moment for preconditioned_gd and private_splines, else disjoint_portions (Algorithm 3 of Wu et al. 2017) or random_repetition';

create or replace function dbdp.dp_explain_tuning(
  dataset text,
  candidates json,
@options@,
  method text default null,
  repetitions float8 default null,
  distribution text default null,
  selection_epsilon float8 default null
) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@refusing functions.dp_explain_tuning@
$body$;
comment on function dbdp.dp_explain_tuning is
'plan and charge of dp_tune with the same arguments. Reads no row and spends nothing';

-- Dates are compared as text, so datestyle is pinned.
create or replace function dbdp_internal.group_sizes(dataset text, group_by text, groups text[]) returns bigint[]
language plpython3u
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, YMD'
as $body$
@plpython functions.group_sizes@
$body$;
comment on function dbdp_internal.group_sizes is 'internal: public number of rows of each group of a column. Groups are written as PostgreSQL writes the values';

create or replace function dbdp_internal.deal_groups(dataset text, target text, group_by text, groups text[], sizes bigint[]) returns void
language plpython3u
set search_path = pg_catalog, pg_temp
set jit = off
set datestyle = 'ISO, YMD'
as $body$
@plpython functions.deal_groups@
$body$;
comment on function dbdp_internal.deal_groups is 'internal: hold the records of some groups of a column, in one pass, and refer to them in a table (bucket, block). A group''s bucket is its place in the list, from 0';

create or replace function dbdp.dp_train_groups(
  dataset text,
  group_by text,
  groups text[],
@options@
) returns setof dbdp.released_group
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_train_groups@
$body$;
comment on function dbdp.dp_train_groups is
'dp_train for each of the listed groups of a public column, or of a feature with categories if the dataset has a capacity: one model for each, and one charge for all';

create or replace function dbdp.dp_explain_groups(
  dataset text,
  group_by text,
  groups text[],
@options@
) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@refusing functions.dp_explain_groups@
$body$;
comment on function dbdp.dp_explain_groups is
'plan of each group and charge of dp_train_groups with the same arguments. Counts a public column and spends nothing';

create or replace function dbdp_internal.count_errors_transition(errors bigint, block bytea, models bytea, outputs int) returns bigint
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.count_errors_transition@
$body$;
comment on function dbdp_internal.count_errors_transition is 'internal: transition of count_errors';

create or replace aggregate dbdp_internal.count_errors(block bytea, models bytea, outputs int) (
  sfunc = dbdp_internal.count_errors_transition,
  stype = bigint,
  initcond = '0',
  parallel = unsafe
);
comment on aggregate dbdp_internal.count_errors(bytea, bytea, int) is
'internal: number of packed rows that models, one float8 vector for each output, classify wrongly';

create or replace function dbdp_internal.noisy_transition(state bytea, block bytea, initial bytea) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.noisy_transition@
$body$;
comment on function dbdp_internal.noisy_transition is 'internal: transition of noisy_steps: the state after one more block';

create or replace function dbdp_internal.noisy_terminate(state bytea) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.noisy_terminate@
$body$;
comment on function dbdp_internal.noisy_terminate is 'internal: final function of noisy_steps: the model in a state';

create or replace aggregate dbdp_internal.noisy_steps(block bytea, initial bytea) (
  sfunc = dbdp_internal.noisy_transition,
  stype = bytea,
  finalfunc = dbdp_internal.noisy_terminate,
  parallel = unsafe
);
comment on aggregate dbdp_internal.noisy_steps(bytea, bytea) is 'internal: noisy updates over packed blocks, one for each mini-batch. Call it with order by block_no';

create or replace function dbdp_internal.recursive_stages(blocks text, model bytea, centre bytea, objective text, stages json) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
set jit = off
as $body$
@plpython functions.recursive_stages@
$body$;
comment on function dbdp_internal.recursive_stages is 'internal: a model after some stages, each the gradient at it over a table of packed blocks, and steps of single rows drawn from them. stages has stages, steps, step, regularisation and rows. The result is exact, and the caller adds noise';

-- Exact sums: the caller adds noise. Sums of parts may be added in any order; the noise covers the rounding.
create or replace function dbdp_internal.gradient_transition(total bytea, block bytea, model bytea, objective text, clip float8) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.gradient_transition@
$body$;
comment on function dbdp_internal.gradient_transition is 'internal: transition of gradient_sum';

create or replace aggregate dbdp_internal.gradient_sum(block bytea, model bytea, objective text, clip float8) (
  sfunc = dbdp_internal.gradient_transition,
  stype = bytea,
  parallel = unsafe
);
comment on aggregate dbdp_internal.gradient_sum(bytea, bytea, text, float8) is
'internal: sum of the clipped gradients of packed rows at a model. Vectors are float8, little-endian';

create or replace function dbdp_internal.second_moment_transition(total bytea, block bytea, dimension int) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.second_moment_transition@
$body$;
comment on function dbdp_internal.second_moment_transition is 'internal: transition of second_moment';

create or replace aggregate dbdp_internal.second_moment(block bytea, dimension int) (
  sfunc = dbdp_internal.second_moment_transition,
  stype = bytea,
  parallel = unsafe
);
comment on aggregate dbdp_internal.second_moment(bytea, int) is
'internal: sum of the products of all pairs of coordinates of packed rows: a symmetric matrix of float8, little-endian';

create or replace function dbdp_internal.joint_moment_transition(total bytea, block bytea, dimension int, labels int, weight float8) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.joint_moment_transition@
$body$;
comment on function dbdp_internal.joint_moment_transition is 'internal: transition of joint_moment';

create or replace aggregate dbdp_internal.joint_moment(block bytea, dimension int, labels int, weight float8) (
  sfunc = dbdp_internal.joint_moment_transition,
  stype = bytea,
  parallel = unsafe
);
comment on aggregate dbdp_internal.joint_moment(bytea, int, int, float8) is
'internal: second_moment of packed rows with their labels, in that number of coordinates of that weight, behind the features';

create or replace function dbdp_internal.lengths(block bytea, matrix bytea, row_blocks text) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.lengths@
$body$;
comment on function dbdp_internal.lengths is
'internal: upper bounds, float4, on the norms of a block''s packed rows times a matrix of float8, both little-endian. For rows in places row_blocks describes their columns, otherwise it is null';

create or replace function dbdp_internal.measured_gradient_transition(
  total bytea,
  block bytea,
  lengths bytea,
  model bytea,
  objective text,
  clip float8
) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.measured_gradient_transition@
$body$;
comment on function dbdp_internal.measured_gradient_transition is 'internal: transition of measured_gradient_sum';

create or replace aggregate dbdp_internal.measured_gradient_sum(block bytea, lengths bytea, model bytea, objective text, clip float8) (
  sfunc = dbdp_internal.measured_gradient_transition,
  stype = bytea,
  parallel = unsafe
);
comment on aggregate dbdp_internal.measured_gradient_sum(bytea, bytea, bytea, text, float8) is
'internal: gradient_sum of packed rows, with gradients clipped by the lengths of the rows in other coordinates';

create or replace function dbdp_internal.loss_transition(totals bytea, block bytea, models bytea, objective text, "limit" float8) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.loss_transition@
$body$;
comment on function dbdp_internal.loss_transition is 'internal: transition of loss_sum';

create or replace aggregate dbdp_internal.loss_sum(block bytea, models bytea, objective text, "limit" float8) (
  sfunc = dbdp_internal.loss_transition,
  stype = bytea,
  parallel = unsafe
);
comment on aggregate dbdp_internal.loss_sum(bytea, bytea, text, float8) is
'internal: sums of the clipped losses of packed rows, for several candidate models in one pass';

create or replace function dbdp_internal.label_transition(counts bigint[], block bytea, dimension int, classes int) returns bigint[]
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython aggregates.label_transition@
$body$;
comment on function dbdp_internal.label_transition is 'internal: transition of label_counts';

create or replace aggregate dbdp_internal.label_counts(block bytea, dimension int, classes int) (
  sfunc = dbdp_internal.label_transition,
  stype = bigint[],
  parallel = unsafe
);
comment on aggregate dbdp_internal.label_counts(bytea, int, int) is
'internal: number of packed rows with each label: -1 and +1 (classes = 1), or 1, 2, …';

create or replace function dbdp_internal.store_release(dataset text, coefficients float8[], intercepts float8[], receipt json) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.store_release@
$body$;
comment on function dbdp_internal.store_release is 'internal: store a model that a client released';

create or replace function dbdp_internal.store_network(dataset text, network json, parameters float8[], receipt json) returns json
language plpython3u
set client_min_messages = error
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.store_network@
$body$;
comment on function dbdp_internal.store_network is 'internal: store a network that a client released';
