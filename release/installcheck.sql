-- A short check of an installed extension, in a database of its own: `make installcheck`.
\set ON_ERROR_STOP on
\set QUIET on
set client_min_messages = warning;
drop database if exists dbdp_installcheck;
drop role if exists dbdp_installcheck_reader;
create database dbdp_installcheck template template0 encoding 'UTF8';
\connect dbdp_installcheck
set client_min_messages = warning;
create extension dbdp cascade;
create table people as select i % 50 as age, i % 50 > 20 as ill from generate_series(1, 2000) as i;
create role dbdp_installcheck_reader;
select dbdp.register_dataset('people', 'people', label => 'ill', positive => 'true',
    features => '{"age": [0, 50]}', epsilon => 4, delta => 1e-5) as registered \gset
select model from dbdp.dp_logreg('people', epsilon => 3, delta => 1e-6) \gset
select avg((dbdp.predict(:model, p) = p.ill)::int) > 0.8 as is_right from people as p \gset
select left_share < 0.5 as is_charged from dbdp.budget('people') \gset
select 1 / (:'is_right'::bool and :'is_charged'::bool)::int as both \gset

set role dbdp_installcheck_reader;
do $$
begin
    perform dbdp.dp_logreg('people', epsilon => 1, delta => 1e-6);
    raise 'a role without a grant has trained';
exception
    when insufficient_privilege then null;
end
$$;
reset role;

select 'installcheck: dbdp ' || extversion || ' on PostgreSQL ' || current_setting('server_version') as result
from pg_extension where extname = 'dbdp' \gset
drop role dbdp_installcheck_reader;
\connect postgres
drop database dbdp_installcheck;
\echo :result trains, predicts, charges and refuses
