-- Roles belong to the cluster, so another database may have created them.
--   dbdp_owner       the interfaces act as it; nobody logs in as it; it reads only tables granted to it
--   dbdp_predictor   predicts with the models granted to it
--   dbdp_analyst     also trains and explains on the datasets granted to it
--   dbdp_data_owner  also registers tables and drives training from a client
do $roles$
declare
  role_name text;
begin
  foreach role_name in array array['dbdp_owner', 'dbdp_predictor', 'dbdp_analyst', 'dbdp_data_owner'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = role_name) then
      execute pg_catalog.format('create role %I nologin', role_name);
    end if;
  end loop;
end
$roles$;
grant dbdp_predictor to dbdp_analyst;
grant dbdp_analyst to dbdp_data_owner;
comment on schema dbdp is 'functions for users (training, prediction, budgets, grants), and the tables of the registry and the ledger';
comment on schema dbdp_internal is 'internal functions, called by dbdp and its clients. They may change with any version';
