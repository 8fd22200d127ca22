-- The functions that users call are in pairs. dbdp_internal.try_NAME does the work, in PL/Python; where it refuses, it undoes
-- what it did, records the error and returns null. dbdp.NAME is SQL that calls it: `accepted` then raises the error, from
-- PL/pgSQL, since PL/Python would add the lines of its code to the text. Both run with the rights of their caller, and
-- whoever may call one may call both (a parameter that has no default here has the default null, which is refused by name):
-- to call try_NAME alone is to call dbdp.NAME in a block that catches its error.
--
-- This body has no prologue: try_NAME has imported dbdp before, and the prologue would forget what `learn` learned.
create or replace function dbdp_internal.last_refusal(
  out message text, out code text, out remedy text, out warnings text[]
)
language plpython3u parallel safe
set search_path = pg_catalog, pg_temp
as $body$
from dbdp.interfaces.sql.outcomes import last_refusal

return last_refusal()
$body$;
comment on function dbdp_internal.last_refusal is 'internal: the error and the warnings that the last try_… of this session recorded, once';

-- Volatile, so that a query that has it as its condition calls it after dbdp_internal.try_… has returned a row.
create or replace function dbdp_internal.accepted() returns boolean
language plpgsql parallel safe
set search_path = pg_catalog, pg_temp
set debug_print_parse = off
set debug_print_rewritten = off
set debug_print_plan = off
as $body$
declare
  refusal record;
  warning text;
begin
  select * into refusal from dbdp_internal.last_refusal();
  foreach warning in array refusal.warnings loop
    raise warning using message = warning;
  end loop;
  if refusal.remedy is not null then
    raise exception using errcode = refusal.code, message = refusal.message, hint = refusal.remedy;
  elsif refusal.code is not null then
    raise exception using errcode = refusal.code, message = refusal.message;
  end if;
  return true;
end
$body$;
comment on function dbdp_internal.accepted is 'internal: true, or the error that the last try_… of this session recorded';
