-- Row-level security: a role sees its own rows. dbdp_owner sees all datasets, charges and rights, since the interfaces
-- check the rights of other roles; of models it sees those that the caller sees, so that no interface shows another one.
-- The policies of tables that dbdp.own_datasets and similar views read are not for dbdp_owner: they would be recursive.
alter table dbdp.dataset enable row level security;
alter table dbdp.allowance enable row level security;
alter table dbdp.ledger enable row level security;
alter table dbdp.model enable row level security;
alter table dbdp.prediction_grant enable row level security;
alter table dbdp.model_name enable row level security;
alter table dbdp.name_grant enable row level security;
alter table dbdp.outcome enable row level security;
alter table dbdp.former_declaration enable row level security;
alter table dbdp.former_answer_time enable row level security;
alter table dbdp.former_capacity enable row level security;

-- Dropped first, so that this file can be run again.
do $policies$
declare
  old record;
begin
  for old in
    select p.polname as name, p.polrelid::pg_catalog.regclass as relation
    from pg_catalog.pg_policy as p
    join pg_catalog.pg_class as c on c.oid = p.polrelid
    where c.relnamespace = 'dbdp'::pg_catalog.regnamespace
  loop
    execute pg_catalog.format('drop policy %I on %s', old.name, old.relation);
  end loop;
end
$policies$;

create policy visible on dbdp.dataset for select to dbdp_predictor
using (id in (select o.id from dbdp.open_datasets as o));
create policy managed on dbdp.dataset to dbdp_owner
using (true) with check (true);

create policy visible on dbdp.allowance for select to dbdp_predictor
using (role_id = any ((select dbdp_internal.own_roles())::name[]) or dataset_id in (select o.id from dbdp.own_datasets as o));
create policy managed on dbdp.allowance to dbdp_owner
using (true) with check (true);

create policy visible on dbdp.ledger for select to dbdp_predictor
using (charged_by_id = any ((select dbdp_internal.own_roles())::name[]) or dataset_id in (select o.id from dbdp.own_datasets as o));
create policy managed on dbdp.ledger to dbdp_owner
using (true) with check (true);

create policy visible on dbdp.model for select to dbdp_predictor, dbdp_owner
using (
  released_by_id = any ((select dbdp_internal.own_roles())::name[])
  or dataset_id in (select o.id from dbdp.own_datasets as o)
  or id in (select g.id from dbdp.granted_models as g)
  or name in (select g.name from dbdp.granted_names as g)
);
create policy released on dbdp.model for insert to dbdp_owner
with check (true);

create policy visible on dbdp.prediction_grant for select to dbdp_predictor
using (
  role_id = any ((select dbdp_internal.own_roles())::name[])
  or model_id in (
    select m.id
    from dbdp.model as m
    where m.released_by_id = any ((select dbdp_internal.own_roles())::name[])
    or m.dataset_id in (select o.id from dbdp.own_datasets as o)
  )
);
create policy managed on dbdp.prediction_grant to dbdp_owner
using (true) with check (true);

create policy visible on dbdp.model_name for select to dbdp_predictor
using (
  owned_by_id = any ((select dbdp_internal.own_roles())::name[])
  or registered_by_id = any ((select dbdp_internal.own_roles())::name[])
);
create policy managed on dbdp.model_name to dbdp_owner
using (true) with check (true);

create policy visible on dbdp.name_grant for select to dbdp_predictor -- its own, and of the names that it may grant
using (
  role_id = any ((select dbdp_internal.own_roles())::name[])
  or exists (select from dbdp.model_name as n where n.name = name_grant.name)
);
create policy managed on dbdp.name_grant to dbdp_owner
using (true) with check (true);

create policy visible on dbdp.outcome for select to dbdp_predictor -- of the charges that a role sees
using (exists (select from dbdp.ledger as l where l.id = ledger_id));
create policy managed on dbdp.outcome to dbdp_owner
using (true) with check (true);

create policy visible on dbdp.former_declaration for select to dbdp_predictor -- of the datasets that a role sees
using (exists (select from dbdp.dataset as d where d.id = dataset_id));
create policy managed on dbdp.former_declaration to dbdp_owner
using (true) with check (true);

create policy visible on dbdp.former_answer_time for select to dbdp_predictor -- of the datasets that a role sees
using (exists (select from dbdp.dataset as d where d.id = dataset_id));
create policy managed on dbdp.former_answer_time to dbdp_owner
using (true) with check (true);

create policy visible on dbdp.former_capacity for select to dbdp_predictor -- of the datasets that a role sees
using (exists (select from dbdp.dataset as d where d.id = dataset_id));
create policy managed on dbdp.former_capacity to dbdp_owner
using (true) with check (true);
