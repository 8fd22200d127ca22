-- From 0.1.0 to 0.2.0: what CREATE OR REPLACE cannot do. The parts of sql/ are run after the last step.

-- The books belong to whoever installs, so that what is written stays written; the odometers to dbdp_owner.
create table dbdp.odometers (id int);
comment on table dbdp.odometers is 'always empty: the sequences that count what was spent belong to it, and so go with the extension';
alter table dbdp.odometers owner to dbdp_owner;
do $odometers$
declare
  odometer regclass;
begin
  for odometer in
    select c.oid
    from pg_catalog.pg_class as c
    where c.relnamespace = 'dbdp'::pg_catalog.regnamespace
    and c.relkind = 'S'
    and c.relname ~ '^(charge|leak)_[0-9]+$'
  loop
    execute pg_catalog.format('alter sequence %s owned by dbdp.odometers.id', odometer);
  end loop;
end
$odometers$;
alter table dbdp.dataset owner to current_user;
alter table dbdp.ledger owner to current_user;
alter table dbdp.model owner to current_user;
revoke all on dbdp.dataset, dbdp.ledger, dbdp.model from dbdp_owner, dbdp_analyst, dbdp_data_owner;
revoke all on dbdp.datasets, dbdp.models from dbdp_analyst;
revoke all on all functions in schema dbdp from dbdp_analyst, dbdp_data_owner;
revoke all on function dbdp.array_bytes(float8[]), dbdp.array_bytes(float4[]) from dbdp_owner;

-- Columns and tables.
alter table dbdp.dataset
  add column unit text,
  add column max_rows int,
  add column renews int unique,
  add column reason text,
  add constraint dataset_unit check ((unit is null) = (max_rows is null)),
  add constraint dataset_renewal check ((renews is null) = (reason is null));

-- What the odometers showed behind a charge was not written down: at least what the ledger has until then.
alter table dbdp.ledger
  add column charge_after bigint,
  add column leak_after bigint;
update dbdp.ledger as l
set charge_after = s.charge,
    leak_after = s.leak
from (
  select id,
         pg_catalog.sum(charge) over earlier as charge,
         pg_catalog.sum(leak) over earlier as leak
  from dbdp.ledger
  window earlier as (partition by dataset_id order by id)
) as s
where s.id = l.id;
alter table dbdp.ledger alter column charge_after set not null, alter column leak_after set not null;
create index ledger_height on dbdp.ledger (dataset_id, charge_after);

alter table dbdp.model add column released_by name;
update dbdp.model as m
set released_by = coalesce(m.receipt ->> 'released_by', d.registered_by)
from dbdp.dataset as d
where d.id = m.dataset_id;
alter table dbdp.model alter column released_by set default session_user, alter column released_by set not null;

-- Functions with other arguments or results than before, and one that another took the place of.
select dbdp.retire('dbdp.register_dataset(text, regclass, text, text, json, float8, float8, text, boolean, text, text[], float8[])');
drop function dbdp.record_dataset(text, regclass, json, float8, float8, text);
drop function dbdp.charge(text, json);
drop aggregate dbdp.confusion(bytea, bytea, int, text);
drop function dbdp.confusion_transition(bytea, bytea, bytea, int, text);
drop function dbdp.confusion_terminate(bytea);
