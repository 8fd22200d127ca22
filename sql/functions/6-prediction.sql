-- The functions that a query calls for each row set no search_path: setting it for each row would cost as much as the
-- prediction. They qualify all names. The wrappers are inlined, so that `model_description` is called for the first row of
-- a session only, in parallel workers too.

create or replace function dbdp_internal.base_type(type oid) returns oid
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
begin atomic
  with recursive base as (
    select t.oid, t.typtype, t.typbasetype from pg_catalog.pg_type as t where t.oid = type
    union all
    select t.oid, t.typtype, t.typbasetype
    from base
    join pg_catalog.pg_type as t on t.oid = base.typbasetype
    where base.typtype = 'd'
  )
  select base.oid from base where base.typtype <> 'd';
end;
comment on function dbdp_internal.base_type is 'internal: the base type of a domain, or the type itself';

-- All that a scorer needs: declaration, coefficients or network, and for rows the columns of their type. Each statement that
-- predicts for rows asks for it, so its plan is kept, which SQL functions do not. A kept plan is one role's, because of the
-- policy of dbdp.model: `vouched` has a copy of its own.
@each described, what: described, the text of model_description that no session has vouched for; described_to_vouch, the text that vouched has its session remember do@
create or replace function dbdp_internal.@described@(model bigint, row_type oid) returns text
language plpgsql
stable parallel safe
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
set extra_float_digits = 1 -- a coefficient is written with all its digits, whatever the session has set
as $body$
declare
  relation constant pg_catalog.oid := (
    select t.typrelid
    from pg_catalog.pg_type as t
    where t.oid = (
      select case r.typtype when 'd' then dbdp_internal.base_type(r.oid) else r.oid end
      from pg_catalog.pg_type as r
      where r.oid = row_type
    ));
begin
  return (
    select pg_catalog.json_build_object(
      'name', m.name,
      'version', m.version,
      'declaration', m.declaration,
      'coefficients', m.coefficients,
      'intercept', m.intercept,
      'intercepts', m.intercepts,
      'network', m.network,
      'parameters', pg_catalog.encode(dbdp_internal.array_bytes(m.parameters), 'base64'),
      'receipt', m.receipt, -- which probabilities the classes have
      'columns', (
        select pg_catalog.json_object_agg(
          a.attname,
          pg_catalog.json_build_array(
            case when b.typtype = 'e' then 'enum ' else '' end || pg_catalog.format_type(b.oid, null),
            a.attlen,
            a.attalign)
          order by a.attnum)
        from pg_catalog.pg_attribute as a
        cross join lateral (
          select case c.typtype when 'd' then dbdp_internal.base_type(c.oid) else c.oid end as number
          from pg_catalog.pg_type as c
          where c.oid = a.atttypid
          offset 0 -- by an index, for each column
        ) as d
        cross join lateral (
          select t.oid, t.typtype
          from pg_catalog.pg_type as t
          where t.oid = d.number
          offset 0
        ) as b
        where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
      ),
      'dropped', exists (
        select
        from pg_catalog.pg_attribute as a
        where a.attrelid = relation and a.attnum > 0 and a.attisdropped
      ))::pg_catalog.text
    from dbdp.model as m
    where m.id = model and not m.is_summary
  );
end
$body$;
comment on function dbdp_internal.@described@ is 'internal: @what@';
@end@

-- A parallel worker cannot query in PL/Python, so `learn` is passed the description, and a false one would decide for the
-- role until its session ends. So model_description, which reads with the rights of the caller, has this session vouch for
-- its text, and learn takes no other. `vouched` is the only function that runs with its owner's rights, a superuser's:
-- whatever it is passed, the text that `vouch` remembers is the stored model's, and nobody sees it.
create or replace function dbdp_internal.vouch(model bigint, row_type oid, description text) returns boolean
language plpython3u
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
@plpython scoring.vouch@
$body$;
comment on function dbdp_internal.vouch is 'internal: remember that a description is the stored one of a model, for learn';

create or replace function dbdp_internal.vouched(model bigint, row_type oid) returns boolean
language sql
stable parallel safe security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select dbdp_internal.vouch(model, row_type, dbdp_internal.described_to_vouch(model, row_type));
end;
comment on function dbdp_internal.vouched is 'internal: remember the stored description of a model, for learn';

create or replace function dbdp_internal.model_description(model bigint, row_type oid default 0) returns text
language plpgsql
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
begin
  return case when dbdp_internal.vouched(model, row_type) then dbdp_internal.described(model, row_type) end;
end
$body$;
comment on function dbdp_internal.model_description is 'internal: the description of a released model that predict parses';

-- Like array_bytes: a row's own bytes in one copy, where record_send calls a function for each column.
create or replace function dbdp_internal.row_bytes(record) returns bytea
language internal immutable strict parallel safe
as 'byteasend';
comment on function dbdp_internal.row_bytes(record) is 'internal: the bytes of a row as the server stores them';

create or replace function dbdp_internal.row_sent(record) returns bytea
language internal stable strict parallel safe
as 'record_send';
comment on function dbdp_internal.row_sent(record) is 'internal: the binary form of a row';

-- What is neither a row, nor an array of numbers, nor JSON is refused by name: a number alone, words.
create or replace function dbdp_internal.not_a_row(what text) returns bytea
language plpgsql
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
begin
  raise exception using errcode = 'DP001', message = 'dbdp: features are ' || what ||
    '; pass a row of a table or view, to_jsonb(x) of any other row x, or the array of numbers that the model was trained on';
end
$body$;
comment on function dbdp_internal.not_a_row is 'internal: refuse features of another type';

@each type, what: float8, a number; boolean, a boolean; text[], an array of text; json, json do@
create or replace function dbdp_internal.row_bytes(@type@) returns bytea
language sql
stable parallel safe
return dbdp_internal.not_a_row('@what@');
comment on function dbdp_internal.row_bytes(@type@) is 'internal: refuse features of another type';

create or replace function dbdp_internal.row_sent(@type@) returns bytea
language sql
stable parallel safe
return dbdp_internal.not_a_row('@what@');
comment on function dbdp_internal.row_sent(@type@) is 'internal: refuse features of another type';
@end@

create or replace function dbdp_internal.no_features(call text) returns void
language plpgsql
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
begin
  raise exception using errcode = 'DP001', message = pg_catalog.format(
    'dbdp: %1$s needs a model and features; pass %1$s(model, x), with a row x of a table or view, to_jsonb(x) of any other row '
    'x, or the array of numbers that the model was trained on', call);
end
$body$;
comment on function dbdp_internal.no_features is 'internal: refuse a prediction without features, or without a model';

create or replace function dbdp_internal.json_of(features text) returns jsonb
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $body$
begin
  return features::jsonb;
exception when others then
  raise exception using errcode = 'DP001', message = 'dbdp: features ' || quote_literal(left(features, 40)) ||
    ' are text, not JSON; pass a row of a table or view, JSON with the model''s columns, or an array such as array[1, 2]';
end
$body$;
comment on function dbdp_internal.json_of is 'internal: JSON from text; other text is refused';

create or replace function dbdp_internal.table_rows(
  source regclass, vector text, "limit" bigint, out shown json, out row_type oid, out features bytea
) returns setof record
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython functions.table_rows@
$body$;
comment on function dbdp_internal.table_rows is 'internal: rows of a table for a client that may read it, read as the table''s owner, with the bytes that a prediction needs';

-- What a session knows of models. By name, a statement looks the number up once and the session remembers it until the next
-- statement, which may see another version; so a row costs what it costs by number.

create or replace function dbdp_internal.knows(model bigint, row_type oid, kind text) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython scoring.knows@
$body$;

create or replace function dbdp_internal.learn(model bigint, row_type oid, description text, kind text) returns boolean
language plpython3u
stable parallel safe cost 300
as $body$
@refusing scoring.try_learn@
$body$;
comment on function dbdp_internal.knows(bigint, oid, text) is 'internal: whether the session has a scorer of a model for rows of a type';
comment on function dbdp_internal.learn is 'internal: create the session''s scorer of a model from its description';

-- A prediction is null for a null, and for what does not fit: `fits` tells them apart, and `learn_for` refuses.
create or replace function dbdp_internal.fits(model bigint, row_type oid, features bytea, kind text) returns boolean
language plpython3u
stable parallel safe cost 300
as $body$
@plpython scoring.fits@
$body$;
comment on function dbdp_internal.fits(bigint, oid, bytea, text) is 'internal: whether the session has a scorer of a model, and an array or JSON has the form that it needs';

create or replace function dbdp_internal.learn_for(
  model bigint, row_type oid, description text, kind text, features bytea
) returns boolean
language plpython3u
stable parallel safe cost 300
set search_path = pg_catalog, pg_temp
as $body$
@refusing scoring.try_learn@
$body$;
comment on function dbdp_internal.learn_for is 'internal: as learn, but refuses an array or JSON that the model cannot be used for';

create or replace function dbdp_internal.model_number(model text) returns bigint
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
begin atomic
  select m.id
  from dbdp.model as m
  where not m.is_summary
  and case
    when model ~ '^[0-9]+$' then m.id::text = model
    else m.name = pg_catalog.split_part(model, '@', 1)
      and (model !~ '@' or m.version::text = pg_catalog.substr(model, pg_catalog.strpos(model, '@') + 1))
  end
  order by m.version desc
  limit 1;
end;
comment on function dbdp_internal.model_number is 'internal: the number of the latest model of a name that the caller may predict with, or of ''name@version''. null without one';

create or replace function dbdp_internal.note_number(model text, number bigint, kind text, statement float8) returns bigint
language plpython3u
stable parallel safe cost 300
set search_path = pg_catalog, pg_temp
as $body$
@plpython scoring.remember@
$body$;
comment on function dbdp_internal.note_number is 'internal: remember the number of a model by its name until the statement ends, and return it';

create or replace function dbdp_internal.no_model(model text, known text[]) returns bigint
language plpython3u
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
@refusing scoring.try_no_model@
$body$;
comment on function dbdp_internal.no_model is 'internal: refuse a name that no model has. known are the names that the caller may predict with';

create or replace function dbdp_internal.remember(model text, number bigint, kind text, statement float8) returns bigint
language sql
stable parallel safe cost 300
set search_path = pg_catalog, pg_temp
as $body$
select case
  when number is null then dbdp_internal.no_model(
    model, array(select distinct m.name from dbdp.model as m where m.name is not null and not m.is_summary))
  else dbdp_internal.note_number(model, number, kind, statement)
end
$body$;
comment on function dbdp_internal.remember is 'internal: remember the number of a model by its name until the statement ends, and return it. Refuses a name without a model';

create or replace function dbdp_internal.knows(model text, row_type oid, kind text, statement float8) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython scoring.knows_named@
$body$;
comment on function dbdp_internal.knows(text, oid, text, float8) is 'internal: whether the session has a scorer of a model by its name for rows of a type';

create or replace function dbdp_internal.fits(model text, row_type oid, features bytea, kind text, statement float8) returns boolean
language plpython3u
stable parallel safe cost 300
as $body$
@plpython scoring.fits_named@
$body$;
comment on function dbdp_internal.fits(text, oid, bytea, text, float8) is 'internal: as fits(bigint, oid, bytea, text), by name';

-- Arguments of what is called for each row have no names: PL/Python would set a variable for each, in each call, for a third of
-- its time. They are (model, type of the row or 0, bytes), or (model, bytes as stored, number of the statement).
-- Arrays of literals, such as array[1, 2.5], are int4[] or numeric[]. The number 3802 is the OID of jsonb.
@each call, of, kind, result, what:
  predict, predict, binary, boolean, whether a released model predicts the positive class;
  predict_probability, probability, binary, float8, the probability of the positive class by a released model;
  predict_class, predict_class, classes, text, the class that a released model of a label with classes predicts;
  predict_probabilities, probabilities, probabilities, jsonb, the probability of each class by a released model of a label with classes;
  predict_value, predict_value, real, float8, the number that a released model of a label with bounds predicts
do@

create or replace function dbdp_internal.@of@(bigint, oid, bytea) returns @result@
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython scoring.@of@@
$body$;
comment on function dbdp_internal.@of@(bigint, oid, bytea) is 'internal: @call@ by the session''s scorer for the bytes of an array or a row. null if the session has no scorer';

create or replace function dbdp_internal.@of@(text, oid, bytea, float8) returns @result@
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython scoring.@of@_named@
$body$;
comment on function dbdp_internal.@of@(text, oid, bytea, float8) is 'internal: as @of@(bigint, oid, bytea), by name';

@each model, body: bigint, @of@_stored; text, @of@_stored_named do@
create or replace function dbdp_internal.@of@_stored(@model@, bytea, float8) returns @result@
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython scoring.@body@@
$body$;
comment on function dbdp_internal.@of@_stored(@model@, bytea, float8) is 'internal: @call@ for the bytes of a stored row, called once for each row of a statement';
@end@

@each array: float8; float4 do@
create or replace function dbdp.@call@(model bigint, features @array@[]) returns @result@
language sql
stable parallel safe
return coalesce(
  dbdp_internal.@of@(model, 0::oid, dbdp_internal.array_bytes(features)),
  case
    when dbdp_internal.fits(model, 0::oid, dbdp_internal.array_bytes(features), '@kind@') then null
    when dbdp_internal.learn_for(
      model, 0::oid, dbdp_internal.model_description(model), '@kind@', dbdp_internal.array_bytes(features))
    then dbdp_internal.@of@(model, 0::oid, dbdp_internal.array_bytes(features))
  end);

create or replace function dbdp.@call@(model text, features @array@[]) returns @result@
language sql
stable parallel safe
return coalesce(
  dbdp_internal.@of@(
    model, 0::oid, dbdp_internal.array_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp_internal.fits(
      model, 0::oid, dbdp_internal.array_bytes(features), '@kind@',
      pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.@call@(
      dbdp_internal.remember(model, dbdp_internal.model_number(model), '@kind@', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);
@end@

@each array: int4; numeric do@
create or replace function dbdp.@call@(model bigint, features @array@[]) returns @result@
language sql
stable parallel safe
return dbdp.@call@(model, features::float8[]);

create or replace function dbdp.@call@(model text, features @array@[]) returns @result@
language sql
stable parallel safe
return dbdp.@call@(model, features::float8[]);
@end@

@each array: float8; float4; int4; numeric do@
comment on function dbdp.@call@(bigint, @array@[]) is '@what@. null if a feature is null or not finite';
comment on function dbdp.@call@(text, @array@[]) is '@what@, by its name. null if a feature is null or not finite';
@end@

create or replace function dbdp.@call@(model bigint, features anyelement) returns @result@
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp_internal.@of@_stored(
    model, dbdp_internal.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp_internal.@of@(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp_internal.row_sent(features)),
  case
    when dbdp_internal.knows(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, '@kind@') then null
    when dbdp_internal.learn(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp_internal.model_description(model, pg_catalog.pg_typeof(features)::pg_catalog.oid), '@kind@') then dbdp_internal.@of@(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp_internal.row_sent(features))
  end)
$body$;
comment on function dbdp.@call@(bigint, anyelement) is '@what@, for a row of any table with the model''s columns';

create or replace function dbdp.@call@(model text, features anyelement) returns @result@
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp_internal.@of@_stored(
    model, dbdp_internal.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp_internal.@of@(
    model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp_internal.row_sent(features),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp_internal.knows(
      model, pg_catalog.pg_typeof(features)::pg_catalog.oid, '@kind@',
      pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.@call@(
      dbdp_internal.remember(
        model, dbdp_internal.model_number(model), '@kind@',
        pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end)
$body$;
comment on function dbdp.@call@(text, anyelement) is '@what@, by its name, for a row of any table with the model''s columns';

-- Rows of joins, subqueries and CTEs: `to_jsonb(x)`.
create or replace function dbdp.@call@(model bigint, features jsonb) returns @result@
language sql
stable parallel safe
return coalesce(
  dbdp_internal.@of@(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8')),
  case
    when dbdp_internal.fits(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'), '@kind@') then null
    when dbdp_internal.learn_for(
      model, 3802::oid, dbdp_internal.model_description(model, 3802::oid), '@kind@',
      pg_catalog.convert_to(features::text, 'UTF8'))
    then dbdp_internal.@of@(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'))
  end);
comment on function dbdp.@call@(bigint, jsonb) is '@what@, for an object with the model''s columns, such as to_jsonb of a row, or for an array';

create or replace function dbdp.@call@(model text, features jsonb) returns @result@
language sql
stable parallel safe
return coalesce(
  dbdp_internal.@of@(
    model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp_internal.fits(
      model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'), '@kind@',
      pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.@call@(
      dbdp_internal.remember(model, dbdp_internal.model_number(model), '@kind@', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);
comment on function dbdp.@call@(text, jsonb) is '@what@, by its name, for an object with the model''s columns, such as to_jsonb of a row, or for an array';

-- Unknown literals are text for PostgreSQL: predict('readmission', '{"age": 64}').
@each type: bigint; text do@
create or replace function dbdp.@call@(model @type@, features text) returns @result@
language sql
stable
return dbdp.@call@(model, dbdp_internal.json_of(features));
comment on function dbdp.@call@(@type@, text) is '@what@, for JSON written as text';
@end@

-- A model, or a row, without the other: PostgreSQL would say that there is no such function.
@each argument, type: model text default null, text; model anyelement, anyelement do@
create or replace function dbdp.@call@(@argument@) returns @result@
language plpgsql
stable parallel safe
set search_path = pg_catalog, pg_temp
as $body$
begin
  perform dbdp_internal.no_features('@call@');
end
$body$;
comment on function dbdp.@call@(@type@) is 'refuses: @call@ needs a model and features';
@end@
@end@
