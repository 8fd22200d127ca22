-- From 0.1.0 to 0.2.0: what CREATE OR REPLACE cannot do. All parts of sql/ but 00 and 10 are run behind it.

-- Columns.
alter table dbdp.dataset
  add column renews int unique,
  add column reason text,
  add constraint dataset_renewal check ((renews is null) = (reason is null));

-- What the odometers showed behind a charge was not written down: at least what the ledger has until then.
alter table dbdp.ledger add column charge_after bigint, add column leak_after bigint;
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

-- Functions with other arguments or results than before.
drop function dbdp.register_dataset(text, regclass, text, text, json, float8, float8, text, boolean, text, text[], float8[]);
drop function dbdp.record_dataset(text, regclass, json, float8, float8, text);
drop function dbdp.charge(text, json);
