-- Roles belong to the whole cluster, so another database may have made them.
--   dbdp_owner       owns tables and definer functions; nobody logs in as it; sees only granted tables
--   dbdp_predictor   predicts with the models that it was given
--   dbdp_analyst     also trains and explains on the datasets that it was given
--   dbdp_data_owner  also registers tables and drives training from a client
do $roles$
declare
  wanted text;
begin
  foreach wanted in array array['dbdp_owner', 'dbdp_predictor', 'dbdp_analyst', 'dbdp_data_owner'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = wanted) then
      execute pg_catalog.format('create role %I nologin', wanted);
    end if;
  end loop;
end
$roles$;
grant dbdp_predictor to dbdp_analyst;
grant dbdp_analyst to dbdp_data_owner;
grant usage on schema dbdp to public;
grant create on schema dbdp to dbdp_owner; -- the odometers of each dataset
