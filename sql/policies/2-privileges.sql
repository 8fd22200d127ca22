-- All rights on the extension's objects are granted in this file. Default privileges, those of the superuser who installs for
-- example, may have added others, and so may a grant: with TRIGGER on a table a role's code runs as dbdp_owner.
do $revoked$
declare
  given record;
begin
  for given in
    select r.grantee, pg_catalog.array_agg(distinct r.object) as objects
    from dbdp_internal.rights as r
    group by r.grantee
  loop
    for place in 1 .. pg_catalog.cardinality(given.objects) loop
      execute pg_catalog.format('revoke all on %s from %s cascade', given.objects[place], given.grantee);
    end loop;
    if given.grantee not in ('public', 'dbdp_owner', 'dbdp_predictor', 'dbdp_analyst', 'dbdp_data_owner', 'pg_read_all_stats')
    then
      raise warning 'dbdp: revoked the rights of % on % objects of the extension, such as %', given.grantee,
        pg_catalog.cardinality(given.objects), given.objects[1]
      using hint = 'default privileges (\ddp in psql) or a grant gave them; make a view of your own for what a role shall see';
    end if;
  end loop;
end
$revoked$;
-- Also where PostgreSQL's own defaults give nothing: rights that are written down are compared by pg_dump.
revoke all on all tables in schema dbdp from public;

-- Each function has its own rights. A table is read as its owner, who may have no role of dbdp's, but calls array_bytes.
grant usage on schema dbdp, dbdp_internal to public;
grant create on schema dbdp to dbdp_owner; -- the odometers of each dataset
grant usage on type dbdp.released, dbdp.released_group to public;

-- Functions that act as dbdp_owner are marked by client_min_messages = error. Their callers see the result or the error,
-- and nothing in between: with the values of these parameters that a caller may set, the server would print plans, with
-- the exact model among their constants.
do $acting$
declare
  called regprocedure;
  parameter text;
begin
  for called in
    select p.oid
    from pg_catalog.pg_proc as p
    where p.pronamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
    and 'client_min_messages=error' = any (p.proconfig)
  loop
    execute pg_catalog.format('alter function %s owner to dbdp_owner', called);
    -- If a session has switched it off, policies would stop a training after its charge.
    execute pg_catalog.format('alter function %s set row_security = on', called);
    foreach parameter in array array[
      'debug_print_parse', 'debug_print_rewritten', 'debug_print_plan', 'trace_sort', 'quote_all_identifiers'
    ] loop
      execute pg_catalog.format('alter function %s set %I = off', called, parameter);
    end loop;
  end loop;
end
$acting$;

-- An update replaces a function in PL/Python by one in SQL that keeps its owner: the one that acts is try_NAME.
do $calling$
declare
  calling regprocedure;
begin
  for calling in
    select calls.oid
    from pg_catalog.pg_proc as acts
    join pg_catalog.pg_proc as calls
      on calls.pronamespace in ('dbdp'::pg_catalog.regnamespace, acts.pronamespace)
      and calls.proname = pg_catalog.substr(acts.proname::text, 5)
      and calls.proargtypes = acts.proargtypes
    where acts.pronamespace = 'dbdp_internal'::pg_catalog.regnamespace
    and acts.proname like 'try\_%'
  loop
    execute pg_catalog.format('alter function %s owner to current_user', calling);
  end loop;
end
$calling$;

-- The ledger and the other tables belong to the superuser, so that dbdp_owner cannot change what it has written.
grant select, insert on dbdp.dataset, dbdp.ledger, dbdp.model, dbdp.allowance, dbdp.prediction_grant to dbdp_owner;
grant select, insert on dbdp.outcome, dbdp.former_declaration, dbdp.former_answer_time, dbdp.former_capacity
to dbdp_owner;
grant update (dropped_at, declaration, column_types, answer_seconds, capacity, rows, place, digest) on dbdp.dataset to dbdp_owner;
grant update (epsilon, delta, rdp_order, charge_limit, leak_limit, granted_by, granted_at, revoked_at)
on dbdp.allowance to dbdp_owner;
grant select, insert on dbdp.model_name, dbdp.name_grant to dbdp_owner;
grant update (versions) on dbdp.model_name to dbdp_owner;
grant delete on dbdp.prediction_grant, dbdp.name_grant to dbdp_owner;
grant update (granted_at) on dbdp.prediction_grant, dbdp.name_grant to dbdp_owner; -- to lock a row, no more
grant usage on sequence dbdp.model_id_seq to dbdp_owner;
grant execute on function dbdp_internal.caller, dbdp_internal.is_role_taken, dbdp_internal.membership, dbdp_internal.own_roles, dbdp_internal.model_number to dbdp_owner;

-- Identities of roles.
grant execute on function dbdp_internal.identity_of, dbdp_internal.role_of, dbdp_internal.role_name
to dbdp_owner, dbdp_predictor, pg_read_all_stats;
grant select on dbdp.installation, dbdp.former_role to dbdp_owner, dbdp_predictor, pg_read_all_stats;
grant update (role, confirmed_by, confirmed_at) on dbdp.former_role to dbdp_owner;
grant insert on dbdp.former_role to dbdp_owner; -- an identity that is no role any more
grant select on dbdp.identities, dbdp.identity_uses to dbdp_owner;
grant select on dbdp.unconfirmed_roles to dbdp_owner, dbdp_data_owner;
grant execute on function dbdp.confirm_role, dbdp.retire_role to dbdp_data_owner;

grant execute on function dbdp_internal.shuffle, dbdp_internal.check_room, dbdp_internal.forget_blocks, dbdp_internal.recursive_stages, dbdp_internal.sgd_transition, dbdp_internal.sgd_terminate to dbdp_owner;
grant execute on function dbdp_internal.group_sizes, dbdp_internal.deal_groups, dbdp_internal.resume to dbdp_owner;
-- A table is read with the rights of its owner, which may lack dbdp_data_owner if one of its members registered it.
grant execute on function
  dbdp_internal.array_bytes(float8[]), dbdp_internal.array_bytes(float4[]), dbdp_internal.array_size(float8[]), dbdp_internal.array_size(float4[]),
  dbdp_internal.receive
to public;
grant execute on function
  dbdp_internal.sgd_epoch(bytea, bytea), dbdp_internal.count_errors(bytea, bytea, int), dbdp_internal.count_errors_transition,
  dbdp_internal.noisy_transition, dbdp_internal.noisy_terminate, dbdp_internal.noisy_steps(bytea, bytea),
  dbdp_internal.gradient_transition, dbdp_internal.gradient_sum(bytea, bytea, text, float8),
  dbdp_internal.second_moment_transition, dbdp_internal.second_moment(bytea, int), dbdp_internal.lengths,
  dbdp_internal.measured_gradient_transition, dbdp_internal.measured_gradient_sum(bytea, bytea, bytea, text, float8),
  dbdp_internal.joint_moment_transition, dbdp_internal.joint_moment(bytea, int, int, float8),
  dbdp_internal.loss_transition, dbdp_internal.loss_sum(bytea, bytea, text, float8),
  dbdp_internal.label_transition, dbdp_internal.label_counts(bytea, int, int),
  dbdp_internal.tally_transition, dbdp_internal.tally_terminate, dbdp_internal.tally(bytea, bytea, text)
to dbdp_owner;

grant execute on function
  dbdp.dp_train, dbdp.dp_logreg, dbdp.dp_svm, dbdp.dp_linreg, dbdp.dp_tune, dbdp.dp_explain, dbdp.dp_explain_tuning,
  dbdp.dp_score(bigint, text, text, float8, float8, int, text, jsonb), dbdp.dp_score(text, text, text, float8, float8, int, text, jsonb),
  dbdp.evaluate(bigint, text, float8, float8, int, float8, jsonb), dbdp.evaluate(text, text, float8, float8, int, float8, jsonb),
  dbdp.dp_explain_score, dbdp.dp_class_balance, dbdp.dp_summarize,
  dbdp.dp_describe, dbdp.dp_table, dbdp.dp_explain_table, dbdp.dp_quantiles, dbdp.dp_explain_quantiles,
  dbdp.dp_train_groups, dbdp.dp_explain_groups,
  dbdp_internal.allowance_spent, dbdp.grant_prediction(bigint, name), dbdp.revoke_prediction(bigint, name),
  dbdp.grant_prediction(text, name), dbdp.revoke_prediction(text, name)
to dbdp_analyst;
grant execute on function
  dbdp.predict(bigint, float8[]), dbdp.predict(bigint, float4[]), dbdp.predict(bigint, int4[]),
  dbdp.predict(bigint, numeric[]), dbdp.predict(bigint, anyelement),
  dbdp.predict_probability(bigint, float8[]), dbdp.predict_probability(bigint, float4[]),
  dbdp.predict_probability(bigint, int4[]), dbdp.predict_probability(bigint, numeric[]),
  dbdp.predict_probability(bigint, anyelement),
  dbdp.predict_class(bigint, float8[]), dbdp.predict_class(bigint, float4[]), dbdp.predict_class(bigint, int4[]),
  dbdp.predict_class(bigint, numeric[]), dbdp.predict_class(bigint, anyelement),
  dbdp.predict_probabilities(bigint, float8[]), dbdp.predict_probabilities(bigint, float4[]),
  dbdp.predict_probabilities(bigint, int4[]), dbdp.predict_probabilities(bigint, numeric[]),
  dbdp.predict_probabilities(bigint, anyelement),
  dbdp.predict_value(bigint, float8[]), dbdp.predict_value(bigint, float4[]), dbdp.predict_value(bigint, int4[]),
  dbdp.predict_value(bigint, numeric[]), dbdp.predict_value(bigint, anyelement),
  dbdp_internal.predict(bigint, oid, bytea), dbdp_internal.predict_stored(bigint, bytea, float8),
  dbdp_internal.probability(bigint, oid, bytea), dbdp_internal.probability_stored(bigint, bytea, float8),
  dbdp_internal.predict_class(bigint, oid, bytea), dbdp_internal.predict_class_stored(bigint, bytea, float8),
  dbdp_internal.probabilities(bigint, oid, bytea), dbdp_internal.probabilities_stored(bigint, bytea, float8),
  dbdp_internal.predict_value(bigint, oid, bytea), dbdp_internal.predict_value_stored(bigint, bytea, float8),
  dbdp.predict(text, float8[]), dbdp.predict(text, float4[]), dbdp.predict(text, int4[]),
  dbdp.predict(text, numeric[]), dbdp.predict(text, anyelement),
  dbdp.predict_probability(text, float8[]), dbdp.predict_probability(text, float4[]), dbdp.predict_probability(text, int4[]),
  dbdp.predict_probability(text, numeric[]), dbdp.predict_probability(text, anyelement),
  dbdp.predict_class(text, float8[]), dbdp.predict_class(text, float4[]), dbdp.predict_class(text, int4[]),
  dbdp.predict_class(text, numeric[]), dbdp.predict_class(text, anyelement),
  dbdp.predict_probabilities(text, float8[]), dbdp.predict_probabilities(text, float4[]),
  dbdp.predict_probabilities(text, int4[]), dbdp.predict_probabilities(text, numeric[]),
  dbdp.predict_probabilities(text, anyelement),
  dbdp.predict_value(text, float8[]), dbdp.predict_value(text, float4[]), dbdp.predict_value(text, int4[]),
  dbdp.predict_value(text, numeric[]), dbdp.predict_value(text, anyelement),
  dbdp_internal.predict(text, oid, bytea, float8), dbdp_internal.predict_stored(text, bytea, float8),
  dbdp_internal.probability(text, oid, bytea, float8), dbdp_internal.probability_stored(text, bytea, float8),
  dbdp_internal.predict_class(text, oid, bytea, float8), dbdp_internal.predict_class_stored(text, bytea, float8),
  dbdp_internal.probabilities(text, oid, bytea, float8), dbdp_internal.probabilities_stored(text, bytea, float8),
  dbdp_internal.predict_value(text, oid, bytea, float8), dbdp_internal.predict_value_stored(text, bytea, float8),
  dbdp.predict(bigint, jsonb), dbdp.predict(text, jsonb), dbdp.predict(bigint, text), dbdp.predict(text, text),
  dbdp.predict_probability(bigint, jsonb), dbdp.predict_probability(text, jsonb), dbdp.predict_probability(bigint, text), dbdp.predict_probability(text, text),
  dbdp.predict_class(bigint, jsonb), dbdp.predict_class(text, jsonb), dbdp.predict_class(bigint, text), dbdp.predict_class(text, text),
  dbdp.predict_probabilities(bigint, jsonb), dbdp.predict_probabilities(text, jsonb),
  dbdp.predict_probabilities(bigint, text), dbdp.predict_probabilities(text, text),
  dbdp.predict_probabilities(text), dbdp.predict_probabilities(anyelement),
  dbdp.predict_value(bigint, jsonb), dbdp.predict_value(text, jsonb), dbdp.predict_value(bigint, text), dbdp.predict_value(text, text),
  dbdp.predict(text), dbdp.predict(anyelement), dbdp.predict_probability(text), dbdp.predict_probability(anyelement),
  dbdp.predict_class(text), dbdp.predict_class(anyelement), dbdp.predict_value(text), dbdp.predict_value(anyelement),
  dbdp_internal.no_features,
  dbdp.weights(bigint), dbdp.weights(text), dbdp.shapes(bigint), dbdp.shapes(text),
  dbdp.importance(bigint), dbdp.importance(text), dbdp.export_sql(bigint, text, text), dbdp.export_sql(text, text, text), dbdp.receipt(bigint), dbdp.receipt(text),
  dbdp.receipt(bigint, text), dbdp.receipt(text, text),
  dbdp.summary_linreg, dbdp.summary_pca, dbdp.summary_correlations, dbdp.summary_describe, dbdp.summary_table, dbdp.summary_rows,
  dbdp.statistic_describe, dbdp.statistic_table, dbdp.statistic_quantiles,
  dbdp.about, dbdp_internal.knows(bigint, oid, text), dbdp_internal.knows(text, oid, text, float8), dbdp_internal.learn, dbdp_internal.remember,
  dbdp_internal.fits(bigint, oid, bytea, text), dbdp_internal.fits(text, oid, bytea, text, float8), dbdp_internal.learn_for,
  dbdp_internal.note_number, dbdp_internal.no_model, dbdp_internal.not_a_row, dbdp_internal.json_of,
  dbdp_internal.row_bytes(float8), dbdp_internal.row_bytes(boolean), dbdp_internal.row_bytes(text[]), dbdp_internal.row_bytes(json),
  dbdp_internal.row_sent(record), dbdp_internal.row_sent(float8), dbdp_internal.row_sent(boolean), dbdp_internal.row_sent(text[]),
  dbdp_internal.row_sent(json),
  dbdp_internal.model_number, dbdp_internal.table_rows, dbdp_internal.row_bytes(record), dbdp_internal.base_type, dbdp_internal.model_description, dbdp_internal.described, dbdp_internal.vouched,
  dbdp_internal.caller, dbdp_internal.is_role_taken, dbdp_internal.membership, dbdp_internal.own_roles, dbdp_internal.accepted, dbdp_internal.last_refusal
to dbdp_predictor;
grant select on
  dbdp.model, dbdp.models, dbdp.models_details, dbdp.summaries, dbdp.summaries_details, dbdp.statistics, dbdp.own_datasets, dbdp.open_datasets, dbdp.granted_models,
  dbdp.granted_names
to dbdp_predictor;
grant select on
  dbdp.dataset, dbdp.datasets, dbdp.datasets_details, dbdp.ledger, dbdp.allowance, dbdp.allowances, dbdp.allowances_details, dbdp.prediction_grant, dbdp.model_name,
  dbdp.name_grant, dbdp.prediction_grants
to dbdp_analyst;

grant execute on function
  dbdp.register_dataset, dbdp_internal.place_dataset, dbdp.drop_dataset, dbdp_internal.check_rows, dbdp_internal.charge,
  dbdp.grant_training, dbdp.revoke_training,
  dbdp_internal.store_release, dbdp_internal.store_network, dbdp_internal.group_sizes, dbdp_internal.deal_groups, dbdp.dp_bounds, dbdp.dp_categories,
  dbdp_internal.rows_by_pages, dbdp_internal.records_on_pages,
  dbdp_internal.shuffle, dbdp_internal.check_room, dbdp_internal.forget_blocks, dbdp_internal.recursive_stages, dbdp_internal.resume, dbdp_internal.sgd_transition, dbdp_internal.sgd_terminate, dbdp_internal.sgd_epoch(bytea, bytea),
  dbdp_internal.count_errors(bytea, bytea, int), dbdp_internal.count_errors_transition,
  dbdp_internal.noisy_transition, dbdp_internal.noisy_terminate, dbdp_internal.noisy_steps(bytea, bytea),
  dbdp_internal.gradient_transition, dbdp_internal.gradient_sum(bytea, bytea, text, float8),
  dbdp_internal.second_moment_transition, dbdp_internal.second_moment(bytea, int), dbdp_internal.lengths,
  dbdp_internal.measured_gradient_transition, dbdp_internal.measured_gradient_sum(bytea, bytea, bytea, text, float8),
  dbdp_internal.loss_transition, dbdp_internal.loss_sum(bytea, bytea, text, float8),
  dbdp_internal.label_transition, dbdp_internal.label_counts(bytea, int, int),
  dbdp_internal.tally_transition, dbdp_internal.tally_terminate, dbdp_internal.tally(bytea, bytea, text)
to dbdp_data_owner;

grant select on dbdp_internal.rights to dbdp_predictor;

-- Statistics.
grant execute on function dbdp_internal.caller, dbdp_internal.is_role_taken, dbdp_internal.membership, dbdp_internal.own_roles, dbdp_internal.dataset_spent to pg_read_all_stats;
grant execute on function dbdp_internal.dataset_spent to dbdp_data_owner;
grant select on dbdp.stat_datasets, dbdp.stat_datasets_details to pg_read_all_stats, dbdp_data_owner;

-- Reports of what was spent.
grant execute on function dbdp.budget, dbdp.budget_details to dbdp_analyst;
grant select on dbdp.history, dbdp.history_details, dbdp.outcome to dbdp_analyst;
grant execute on function dbdp.check_ledger, dbdp_internal.record_outcome, dbdp.renew_budget, dbdp.redeclare, dbdp.answer_at_multiples,
  dbdp.raise_capacity
to dbdp_data_owner;
grant select on dbdp.former_declaration, dbdp.former_answer_time, dbdp.former_capacity to dbdp_data_owner;

-- Whoever may call a function that refuses may call both of its pair.
do $pairs$
declare
  pair record;
begin
  for pair in
    select acts.oid::regprocedure as acts,
           array(
             select a.grantee::regrole
             from pg_catalog.aclexplode(calls.proacl) as a
             where a.grantee <> calls.proowner
           ) as roles
    from pg_catalog.pg_proc as acts
    join pg_catalog.pg_proc as calls
      on calls.pronamespace in ('dbdp'::pg_catalog.regnamespace, acts.pronamespace)
      and calls.proname = pg_catalog.substr(acts.proname::text, 5)
      and calls.proargtypes = acts.proargtypes
    where acts.pronamespace = 'dbdp_internal'::pg_catalog.regnamespace
    and acts.proname like 'try\_%'
  loop
    execute pg_catalog.format(
      'grant execute on function %s to %s', pair.acts, pg_catalog.array_to_string(pair.roles, ', '));
  end loop;
end
$pairs$;
