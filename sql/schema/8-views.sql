-- Comments on the tables of 5-tables.sql, which an update does not run again.
comment on table dbdp.dataset is 'declarations of owners, as public facts. Two sequences for each row, its odometers, count the spending';
comment on table dbdp.model_name is 'names of models. A name belongs to the role that used it first, on one dataset. versions counts the reserved ones';
comment on table dbdp.odometers is 'always empty. It owns the sequences that count the spending, so they are dropped with the extension';
comment on table dbdp.ledger is 'the readable history of charges. The odometers are authoritative, since a rollback cannot undo them';
comment on table dbdp.model is 'released models with their receipts: coefficients and intercepts, or a network and its parameters. Summaries are here too, with numbers only';

comment on type dbdp.released is 'a released model: its number, its name and version, its guarantee, and whether noise is expected to dominate. null if that is not known';
comment on type dbdp.released_group is 'a released model of a group, as dbdp.released';

create or replace view dbdp.datasets_details with (security_invoker) as
select d.name,
       d.source_name as source,
       d.rows,
       d.declaration,
       d.epsilon,
       d.delta,
       d.mode,
       d.charge_limit / 1e9 as charge_limit,
       d.leak_limit / 1e18 as leak_limit,
       dbdp_internal.role_name(d.registered_by_id, d.registered_by) as registered_by,
       d.registered_at,
       d.unit,
       d.max_rows,
       d.renews,
       d.reason,
       d.answer_seconds,
       d.capacity,
       d.place
from dbdp.dataset as d
where d.dropped_at is null;
comment on view dbdp.datasets_details is 'registered datasets that the role may train on: public facts and total budgets';

create or replace view dbdp.datasets with (security_invoker) as
select v.name,
       coalesce(v.place, v.source) as source,
       v.declaration ->> 'label' as label,
       v.capacity,
       v.unit,
       v.epsilon,
       v.delta,
       v.registered_by
from dbdp.datasets_details as v;
comment on view dbdp.datasets is 'registered datasets that the role may train on. dbdp.datasets_details has the declarations and all other columns';
comment on column dbdp.datasets.name is 'Name of the dataset';
comment on column dbdp.datasets.source is 'Name of its table, or where its rows are, as the role that registered it states';
comment on column dbdp.datasets.label is 'Column of the label';
comment on column dbdp.datasets.capacity is 'Largest number of rows, or of units, that a training run reads; null for a fixed public number';
comment on column dbdp.datasets.unit is 'Column that names the unit of privacy; null for one row';
comment on column dbdp.datasets.epsilon is 'The total budget';
comment on column dbdp.datasets.delta is 'The total budget';
comment on column dbdp.datasets.registered_by is 'The role that registered it';
comment on column dbdp.datasets_details.name is 'Name of the dataset';
comment on column dbdp.datasets_details.source is 'Name of its table';
comment on column dbdp.datasets_details.rows is 'Public number of rows';
comment on column dbdp.datasets_details.declaration is 'Declaration of label and features';
comment on column dbdp.datasets_details.epsilon is 'The total budget';
comment on column dbdp.datasets_details.delta is 'The total budget';
comment on column dbdp.datasets_details.mode is 'How charges are added up';
comment on column dbdp.datasets_details.charge_limit is 'The largest sums of charges and of δ, in the units of the ledger';
comment on column dbdp.datasets_details.leak_limit is 'The largest sums of charges and of δ, in the units of the ledger';
comment on column dbdp.datasets_details.registered_by is 'The role that registered it';
comment on column dbdp.datasets_details.registered_at is 'When it was registered';
comment on column dbdp.datasets_details.unit is 'Column that names the unit of privacy; null for one row';
comment on column dbdp.datasets_details.max_rows is 'Largest number of rows of a unit that a training run reads';
comment on column dbdp.datasets_details.renews is 'Number of the registration that this one renews';
comment on column dbdp.datasets_details.reason is 'Reason of that renewal';
comment on column dbdp.datasets_details.answer_seconds is 'Charged results are delayed to a multiple of these seconds';
comment on column dbdp.datasets_details.place is 'URL of the file, or the name elsewhere, of a dataset that is not a table here; null for a table';
comment on column dbdp.datasets_details.capacity is 'Largest number of rows, or of units, that is read; null for a public number';

create or replace view dbdp.models_details with (security_invoker) as
select m.id,
       m.receipt ->> 'dataset' as dataset,
       m.receipt ->> 'algorithm' as algorithm,
       (m.receipt ->> 'epsilon')::float8 as epsilon,
       (m.receipt ->> 'delta')::float8 as delta,
       m.feature_names,
       m.coefficients,
       m.intercept,
       m.intercepts,
       m.network,
       m.receipt,
       m.name,
       m.version
from dbdp.model as m
where not m.is_summary;
comment on view dbdp.models_details is 'released models that the role may predict with, with their names and versions';

create or replace view dbdp.models with (security_invoker) as
select v.id,
       v.name,
       v.version,
       v.dataset,
       v.algorithm,
       v.epsilon,
       v.delta
from dbdp.models_details as v;
comment on view dbdp.models is 'released models that the role may predict with. For more see dbdp.weights(model), dbdp.receipt(model) and dbdp.models_details';
comment on column dbdp.models.id is 'Number of the model';
comment on column dbdp.models.name is 'Its name';
comment on column dbdp.models.version is 'Its version under that name';
comment on column dbdp.models.dataset is 'Name of the dataset';
comment on column dbdp.models.algorithm is 'The algorithm that trained it';
comment on column dbdp.models.epsilon is 'Its guarantee';
comment on column dbdp.models.delta is 'Its guarantee';
comment on column dbdp.models_details.id is 'Number of the model';
comment on column dbdp.models_details.dataset is 'Name of the dataset';
comment on column dbdp.models_details.algorithm is 'The algorithm that trained it';
comment on column dbdp.models_details.epsilon is 'Its guarantee';
comment on column dbdp.models_details.delta is 'Its guarantee';
comment on column dbdp.models_details.feature_names is 'A name for each coefficient';
comment on column dbdp.models_details.coefficients is 'Per unit of a column or for a category; null for a network';
comment on column dbdp.models_details.intercept is 'Of a model with one output';
comment on column dbdp.models_details.intercepts is 'One for each output; null for a network';
comment on column dbdp.models_details.network is 'Description of a network; null for a linear model';
comment on column dbdp.models_details.receipt is 'The plan and its cost';
comment on column dbdp.models_details.name is 'Its name';
comment on column dbdp.models_details.version is 'Its version under that name';

create or replace view dbdp.summaries_details with (security_invoker) as
select m.id,
       m.receipt ->> 'dataset' as dataset,
       (m.receipt ->> 'epsilon')::float8 as epsilon,
       (m.receipt ->> 'delta')::float8 as delta,
       m.feature_names,
       m.declaration ->> 'label' as label,
       m.receipt
from dbdp.model as m
where m.is_summary
and m.receipt ->> 'algorithm' = 'summary';
comment on view dbdp.summaries_details is 'released summaries that the role may use, as dbdp.summary_linreg, summary_pca and summary_correlations read them';

create or replace view dbdp.summaries with (security_invoker) as
select v.id,
       v.dataset,
       v.label,
       v.epsilon,
       v.delta
from dbdp.summaries_details as v;
comment on view dbdp.summaries is 'released summaries that the role may use. dbdp.summaries_details has their receipts';
comment on column dbdp.summaries.id is 'Number of the summary';
comment on column dbdp.summaries.dataset is 'Name of the dataset';
comment on column dbdp.summaries.label is 'Name of the label''s column';
comment on column dbdp.summaries.epsilon is 'Its guarantee';
comment on column dbdp.summaries.delta is 'Its guarantee';
create or replace view dbdp.statistics with (security_invoker) as
select m.id,
       m.receipt ->> 'dataset' as dataset,
       m.receipt ->> 'algorithm' as kind,
       (m.receipt ->> 'epsilon')::float8 as epsilon,
       (m.receipt ->> 'delta')::float8 as delta,
       (m.receipt ->> 'released_at')::timestamptz as released_at
from dbdp.model as m
where m.is_summary
and m.receipt ->> 'algorithm' <> 'summary';
comment on view dbdp.statistics is 'released statistics that the role may use. Their figures are free: dbdp.statistic_describe, statistic_table and statistic_quantiles show them by their numbers';
comment on column dbdp.statistics.id is 'Number of the statistic';
comment on column dbdp.statistics.dataset is 'Name of the dataset';
comment on column dbdp.statistics.kind is 'The statistic: describe, table or quantiles';
comment on column dbdp.statistics.epsilon is 'Its guarantee';
comment on column dbdp.statistics.delta is 'Its guarantee';
comment on column dbdp.statistics.released_at is 'When it was released';

comment on column dbdp.summaries_details.id is 'Number of the summary';
comment on column dbdp.summaries_details.dataset is 'Name of the dataset';
comment on column dbdp.summaries_details.epsilon is 'Its guarantee';
comment on column dbdp.summaries_details.delta is 'Its guarantee';
comment on column dbdp.summaries_details.feature_names is 'A name for each coordinate of the features';
comment on column dbdp.summaries_details.label is 'Name of the label''s column';
comment on column dbdp.summaries_details.receipt is 'The plan and its cost';

create or replace view dbdp.history_details with (security_invoker) as
select l.id,
       l.charged_at,
       dbdp_internal.role_name(l.charged_by_id, l.charged_by) as charged_by,
       d.name as dataset,
       l.dataset_id as period,
       l.algorithm,
       l.plan #> '{guarantee,event}' as event,
       l.epsilon,
       l.delta,
       l.charge / 1e9 as charge,
       l.leak / 1e18 as leak,
       o.outcome,
       o.models,
       o.at as ended_at,
       o.detail
from dbdp.ledger as l
join dbdp.dataset as d on d.id = l.dataset_id
left join lateral (
  select pg_catalog.min(o.outcome) as outcome,
         pg_catalog.array_agg(o.model order by o.model) filter (where o.model is not null) as models,
         pg_catalog.max(o.at) as at,
         pg_catalog.min(o.detail) as detail
  from dbdp.outcome as o
  where o.ledger_id = l.id
) as o on true;
comment on view dbdp.history_details is 'role, dataset, time, purpose, amount and outcome of each charge. Without an outcome the charge is not finished, or was interrupted';

create or replace view dbdp.history with (security_invoker) as
select v.id,
       v.charged_at::date as charged_on,
       v.charged_by,
       v.dataset,
       v.algorithm,
       v.epsilon,
       v.outcome,
       v.models
from dbdp.history_details as v;
comment on view dbdp.history is 'role, dataset, purpose and outcome of each charge. dbdp.history_details has times, charges and reasons';
comment on column dbdp.history.id is 'Number of the charge in the ledger';
comment on column dbdp.history.charged_on is 'Day of the charge';
comment on column dbdp.history.charged_by is 'The role that was charged';
comment on column dbdp.history.dataset is 'Name of the dataset';
comment on column dbdp.history.algorithm is 'The algorithm of a training run, or the score, that was charged';
comment on column dbdp.history.epsilon is 'The stand-alone guarantee of the release';
comment on column dbdp.history.outcome is 'How it ended; null while it runs';
comment on column dbdp.history.models is 'Numbers of the released models';
comment on column dbdp.history_details.id is 'Number of the charge in the ledger';
comment on column dbdp.history_details.charged_at is 'When it was charged';
comment on column dbdp.history_details.charged_by is 'The role that was charged';
comment on column dbdp.history_details.dataset is 'Name of the dataset';
comment on column dbdp.history_details.period is 'Number of the registration that was charged';
comment on column dbdp.history_details.algorithm is 'The algorithm of a training run, or the score, that was charged';
comment on column dbdp.history_details.event is 'The event that the accountant composes';
comment on column dbdp.history_details.epsilon is 'The stand-alone guarantee of the release';
comment on column dbdp.history_details.delta is 'The stand-alone guarantee of the release';
comment on column dbdp.history_details.charge is 'Amount added to the two sums of the budget';
comment on column dbdp.history_details.leak is 'Amount added to the two sums of the budget';
comment on column dbdp.history_details.outcome is 'How it ended; null while it runs';
comment on column dbdp.history_details.models is 'Numbers of the released models';
comment on column dbdp.history_details.ended_at is 'When it ended';
comment on column dbdp.history_details.detail is 'More about a failure';
