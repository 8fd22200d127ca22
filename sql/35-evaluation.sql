create or replace function dbdp.confusion_transition(counts bytea, block bytea, models bytea, outputs int, network text) returns bytea
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython confusion_transition@
$body$;

create or replace function dbdp.confusion_terminate(counts bytea) returns bigint[]
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython confusion_terminate@
$body$;

create or replace aggregate dbdp.confusion(block bytea, models bytea, outputs int, network text) (
  sfunc = dbdp.confusion_transition,
  stype = bytea,
  finalfunc = dbdp.confusion_terminate,
  parallel = unsafe
);
comment on aggregate dbdp.confusion(bytea, bytea, int, text) is
'rows of packed blocks by true and predicted class: exact counts, to be noised; network is null for linear models';

create or replace function dbdp.dp_confusion(model bigint, dataset text, epsilon float8, delta float8 default 0) returns json
language plpython3u
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $body$
@plpython dp_confusion@
$body$;
comment on function dbdp.dp_confusion is
'confusion matrix of a released model on a registered dataset, with noise, charged to its budget; with accuracy, precision and recall of each class';
