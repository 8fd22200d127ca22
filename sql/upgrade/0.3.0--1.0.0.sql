-- From 0.3.0 to 1.0.0: changes that CREATE OR REPLACE cannot make. The parts of sql/ run again after the last step.

-- A new name is not taken for another; those that are there stay.
alter table dbdp.model_name add column if not exists folded text;
create unique index if not exists model_name_folded on dbdp.model_name (folded);

-- dp_linreg has the option loss, evaluate a threshold, dp_summarize bins, and trainings, scores and summaries a cohort.
-- As long as the former functions are there too, a call of them is ambiguous.
select dbdp.retire(p.oid)
from pg_catalog.pg_proc as p
where p.pronamespace in ('dbdp'::pg_catalog.regnamespace, 'dbdp_internal'::pg_catalog.regnamespace)
and (p.proname in ('dp_linreg', 'try_dp_linreg') and not 'loss' = any (p.proargnames)
  or ('pairs' = any (p.proargnames)
    or p.proname ~ '^(try_)?(evaluate|dp_score|dp_explain_score|dp_summarize)$')
  and not 'cohort' = any (p.proargnames));

-- Rows in places: lengths has a third parameter.
drop function if exists dbdp_internal.lengths(bytea, bytea);
