-- From 0.3.0 to 0.4.0: changes that CREATE OR REPLACE cannot make. The parts of sql/ run again after the last step.

-- A new name is not taken for another; those that are there stay.
alter table dbdp.model_name add column if not exists folded text;
create unique index if not exists model_name_folded on dbdp.model_name (folded);
