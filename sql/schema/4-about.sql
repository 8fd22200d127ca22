create or replace function dbdp.about() returns json
language plpython3u
stable
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.about@
$body$;
comment on function dbdp.about is 'versions of dbdp, Python and its libraries in the server';
