-- Comments on the tables of 10-tables.sql, which an update does not run again.
comment on table dbdp.dataset is 'what owners declared, as public facts; two sequences for each row, its odometers, count what was spent';
comment on table dbdp.model_name is 'names of models: a name belongs to the role that used it first, on one dataset; versions counts those that were reserved';
comment on table dbdp.odometers is 'always empty: it owns the sequences that count what was spent, so that they are dropped with the extension';
comment on table dbdp.ledger is 'the readable history of charges; the odometers are authoritative, since a rollback cannot undo them';
comment on table dbdp.model is 'released models with their receipts: coefficients and intercepts, or a network and its parameters; and summaries, of numbers alone';

comment on type dbdp.released is 'a released model: its number, its name and version, what guarantees it, and whether noise is expected to win over what it learned; null where that is not known';
comment on type dbdp.released_group is 'a released model of a group, as dbdp.released';

create or replace view dbdp.datasets with (security_invoker) as
select d.name,
       d.source_name as source,
       d.rows,
       d.declaration,
       d.epsilon,
       d.delta,
       d.mode,
       d.charge_limit / 1e9 as charge_limit,
       d.leak_limit / 1e18 as leak_limit,
       d.registered_by,
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
comment on view dbdp.datasets is 'registered datasets that the role may train on: public facts and total budgets';

create or replace view dbdp.models with (security_invoker) as
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
comment on view dbdp.models is 'released models that the role may predict with, with their names and versions';

create or replace view dbdp.summaries with (security_invoker) as
select m.id,
       m.receipt ->> 'dataset' as dataset,
       (m.receipt ->> 'epsilon')::float8 as epsilon,
       (m.receipt ->> 'delta')::float8 as delta,
       m.feature_names,
       m.declaration ->> 'label' as label,
       m.receipt
from dbdp.model as m
where m.is_summary;
comment on view dbdp.summaries is 'released summaries that the role may use: what dbdp.summary_linreg, summary_pca and summary_correlations read';

create or replace view dbdp.history with (security_invoker) as
select l.id,
       l.charged_at,
       l.charged_by,
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
comment on view dbdp.history is 'which role charged which dataset, when, for what, how much, and the outcome; without an outcome the charge is not finished, or was interrupted';
