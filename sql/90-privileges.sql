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

-- Whoever calls what runs as dbdp_owner sees its answer or its error, and nothing of its way there: with
-- these parameters as a caller may set them, plans with the exact model among their constants are printed.
do $silence$
declare
  called regprocedure;
  parameter text;
begin
  for called in
    select p.oid
    from pg_catalog.pg_proc as p
    join pg_catalog.pg_language as l on l.oid = p.prolang
    where p.pronamespace = 'dbdp'::regnamespace and p.prosecdef and l.lanname = 'plpython3u'
  loop
    execute format('alter function %s set client_min_messages = error', called);
    foreach parameter in array array[
      'debug_print_parse', 'debug_print_rewritten', 'debug_print_plan', 'trace_sort', 'quote_all_identifiers'
    ] loop
      execute format('alter function %s set %I = off', called, parameter);
    end loop;
  end loop;
end
$silence$;
grant execute on function dbdp.shuffle, dbdp.sgd_transition, dbdp.sgd_terminate to dbdp_owner;
-- A table is read with the rights of its owner, who may be no data owner: any member may have registered it.
grant execute on function dbdp.array_bytes(float8[]), dbdp.array_bytes(float4[]) to public;
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
  dbdp.knows, dbdp.learn, dbdp.row_bytes, dbdp.base_type, dbdp.model_description
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
