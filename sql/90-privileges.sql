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
    'function dbdp.record_outcome', 'function dbdp.budget', 'function dbdp.check_ledger',
    'function dbdp.renew_budget', 'function dbdp.redeclare',
    'table dbdp.dataset', 'table dbdp.ledger', 'table dbdp.model'
  ] loop
    execute 'alter ' || object || ' owner to dbdp_owner';
    if object like 'function %' then -- where a session turned it off, policies would stop a training behind its charge
      execute 'alter ' || object || ' set row_security = on';
    end if;
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

-- The readable side of the books.
grant select, insert on dbdp.outcome, dbdp.former_declaration to dbdp_owner;
grant execute on function dbdp.budget to dbdp_analyst;
grant execute on function dbdp.check_ledger, dbdp.record_outcome, dbdp.renew_budget, dbdp.redeclare to dbdp_data_owner;
grant select on dbdp.history, dbdp.outcome, dbdp.former_declaration to dbdp_data_owner;
