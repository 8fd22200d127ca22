-- The functions that a query calls for each row set no search_path: setting it for each row would cost as much as the
-- prediction. They qualify all names. The wrappers are inlined, so that `model_description` is called for the first row of
-- a session only, in parallel workers too.

create or replace function dbdp.base_type(type oid) returns oid
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
comment on function dbdp.base_type is 'internal: the base type of a domain, or the type itself';

-- All that a scorer needs: declaration, coefficients or network, and for rows the columns of their type.
create or replace function dbdp.model_description(model bigint, row_type oid default 0) returns text
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
set extra_float_digits = 1 -- a coefficient is written with all its digits, whatever the session has set
begin atomic
  select pg_catalog.json_build_object(
    'declaration', m.declaration,
    'coefficients', m.coefficients,
    'intercept', m.intercept,
    'intercepts', m.intercepts,
    'network', m.network,
    'parameters', pg_catalog.encode(dbdp.array_bytes(m.parameters), 'base64'),
    'columns', (
      select pg_catalog.json_object_agg(
        a.attname,
        pg_catalog.json_build_array(
          case when b.typtype = 'e' then 'enum ' else '' end || pg_catalog.format_type(b.oid, null),
          a.attlen,
          a.attalign)
        order by a.attnum)
      from pg_catalog.pg_type as t
      join pg_catalog.pg_attribute as a on a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
      join pg_catalog.pg_type as b on b.oid = dbdp.base_type(a.atttypid)
      where t.oid = dbdp.base_type(row_type)
    ),
    'dropped', exists (
      select
      from pg_catalog.pg_type as t
      join pg_catalog.pg_attribute as a on a.attrelid = t.typrelid
      where t.oid = dbdp.base_type(row_type) and a.attnum > 0 and a.attisdropped
    ))::text
  from dbdp.model as m
  where m.id = model and not m.is_summary;
end;
comment on function dbdp.model_description is 'internal: the description of a released model that predict parses';

-- Like array_bytes: a row's own bytes in one copy, where record_send calls a function for each column.
create or replace function dbdp.row_bytes(record) returns bytea
language internal immutable strict parallel safe
as 'byteasend';
comment on function dbdp.row_bytes is 'internal: the bytes of a row as the server stores them';

create or replace function dbdp.table_rows(
  source regclass, vector text, "limit" bigint, out shown json, out row_type oid, out features bytea
) returns setof record
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@plpython table_rows@
$body$;
comment on function dbdp.table_rows is 'internal: rows of a table for a client that may read it, read as the table''s owner, with the bytes that a prediction needs';

-- Their arguments have no names: PL/Python would set a variable for each, in each call, for a third of its time.
-- (model, type of the row or 0, bytes) and (model, bytes as stored, number of the statement)
create or replace function dbdp.probability(bigint, oid, bytea) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython probability@
$body$;

create or replace function dbdp.probability_stored(bigint, bytea, float8) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython probability_stored@
$body$;

create or replace function dbdp.predict(bigint, oid, bytea) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict@
$body$;

create or replace function dbdp.predict_stored(bigint, bytea, float8) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_stored@
$body$;

create or replace function dbdp.predict_class(bigint, oid, bytea) returns text
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_class@
$body$;

create or replace function dbdp.predict_class_stored(bigint, bytea, float8) returns text
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_class_stored@
$body$;

create or replace function dbdp.predict_value(bigint, oid, bytea) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_value@
$body$;

create or replace function dbdp.predict_value_stored(bigint, bytea, float8) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_value_stored@
$body$;

create or replace function dbdp.knows(model bigint, row_type oid, kind text) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython knows@
$body$;

create or replace function dbdp.learn(model bigint, row_type oid, description text, kind text) returns boolean
language plpython3u
stable parallel safe cost 300
as $body$
@refusing learn@
$body$;

create or replace function dbdp.predict(model bigint, features float8[]) returns boolean
language sql
stable parallel safe
return coalesce(
  dbdp.predict(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'binary') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'binary') then dbdp.predict(model, 0::oid, dbdp.array_bytes(features))
  end);

create or replace function dbdp.predict_probability(model bigint, features float8[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.probability(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'binary') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'binary') then dbdp.probability(model, 0::oid, dbdp.array_bytes(features))
  end);

create or replace function dbdp.predict_class(model bigint, features float8[]) returns text
language sql
stable parallel safe
return coalesce(
  dbdp.predict_class(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'classes') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'classes') then dbdp.predict_class(model, 0::oid, dbdp.array_bytes(features))
  end);

create or replace function dbdp.predict_value(model bigint, features float8[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.predict_value(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'real') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'real') then dbdp.predict_value(model, 0::oid, dbdp.array_bytes(features))
  end);

create or replace function dbdp.predict(model bigint, features float4[]) returns boolean
language sql
stable parallel safe
return coalesce(
  dbdp.predict(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'binary') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'binary') then dbdp.predict(model, 0::oid, dbdp.array_bytes(features))
  end);

create or replace function dbdp.predict_probability(model bigint, features float4[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.probability(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'binary') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'binary') then dbdp.probability(model, 0::oid, dbdp.array_bytes(features))
  end);

create or replace function dbdp.predict_class(model bigint, features float4[]) returns text
language sql
stable parallel safe
return coalesce(
  dbdp.predict_class(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'classes') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'classes') then dbdp.predict_class(model, 0::oid, dbdp.array_bytes(features))
  end);

create or replace function dbdp.predict_value(model bigint, features float4[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.predict_value(model, 0::oid, dbdp.array_bytes(features)),
  case
    when dbdp.knows(model, 0::oid, 'real') then null
    when dbdp.learn(model, 0::oid, dbdp.model_description(model), 'real') then dbdp.predict_value(model, 0::oid, dbdp.array_bytes(features))
  end);

-- Arrays of literals, such as array[1, 2.5], have these types.
create or replace function dbdp.predict(model bigint, features int4[]) returns boolean
language sql
stable parallel safe
return dbdp.predict(model, features::float8[]);

create or replace function dbdp.predict_probability(model bigint, features int4[]) returns float8
language sql
stable parallel safe
return dbdp.predict_probability(model, features::float8[]);

create or replace function dbdp.predict_class(model bigint, features int4[]) returns text
language sql
stable parallel safe
return dbdp.predict_class(model, features::float8[]);

create or replace function dbdp.predict_value(model bigint, features int4[]) returns float8
language sql
stable parallel safe
return dbdp.predict_value(model, features::float8[]);

create or replace function dbdp.predict(model bigint, features numeric[]) returns boolean
language sql
stable parallel safe
return dbdp.predict(model, features::float8[]);

create or replace function dbdp.predict_probability(model bigint, features numeric[]) returns float8
language sql
stable parallel safe
return dbdp.predict_probability(model, features::float8[]);

create or replace function dbdp.predict_class(model bigint, features numeric[]) returns text
language sql
stable parallel safe
return dbdp.predict_class(model, features::float8[]);

create or replace function dbdp.predict_value(model bigint, features numeric[]) returns float8
language sql
stable parallel safe
return dbdp.predict_value(model, features::float8[]);

create or replace function dbdp.predict(model bigint, features anyelement) returns boolean
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.predict_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.predict(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features)),
  case
    when dbdp.knows(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'binary') then null
    when dbdp.learn(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp.model_description(model, pg_catalog.pg_typeof(features)::pg_catalog.oid), 'binary') then dbdp.predict(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features))
  end)
$body$;

create or replace function dbdp.predict_probability(model bigint, features anyelement) returns float8
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.probability_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.probability(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features)),
  case
    when dbdp.knows(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'binary') then null
    when dbdp.learn(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp.model_description(model, pg_catalog.pg_typeof(features)::pg_catalog.oid), 'binary') then dbdp.probability(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features))
  end)
$body$;

create or replace function dbdp.predict_class(model bigint, features anyelement) returns text
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.predict_class_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.predict_class(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features)),
  case
    when dbdp.knows(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'classes') then null
    when dbdp.learn(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp.model_description(model, pg_catalog.pg_typeof(features)::pg_catalog.oid), 'classes') then dbdp.predict_class(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features))
  end)
$body$;

create or replace function dbdp.predict_value(model bigint, features anyelement) returns float8
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.predict_value_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.predict_value(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features)),
  case
    when dbdp.knows(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'real') then null
    when dbdp.learn(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, dbdp.model_description(model, pg_catalog.pg_typeof(features)::pg_catalog.oid), 'real') then dbdp.predict_value(model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features))
  end)
$body$;

comment on function dbdp.predict(bigint, float8[]) is 'whether a released model predicts the positive class; null for a null or not finite feature';
comment on function dbdp.predict_probability(bigint, float8[]) is 'the probability of the positive class by a released model; null for a null or not finite feature';
comment on function dbdp.predict_class(bigint, float8[]) is 'the class that a released model of a label with classes predicts; null for a null or not finite feature';
comment on function dbdp.predict_value(bigint, float8[]) is 'the number that a released model of a label with bounds predicts; null for a null or not finite feature';
comment on function dbdp.predict(bigint, float4[]) is 'whether a released model predicts the positive class; null for a null or not finite feature';
comment on function dbdp.predict_probability(bigint, float4[]) is 'the probability of the positive class by a released model; null for a null or not finite feature';
comment on function dbdp.predict_class(bigint, float4[]) is 'the class that a released model of a label with classes predicts; null for a null or not finite feature';
comment on function dbdp.predict_value(bigint, float4[]) is 'the number that a released model of a label with bounds predicts; null for a null or not finite feature';
comment on function dbdp.predict(bigint, int4[]) is 'whether a released model predicts the positive class; null for a null or not finite feature';
comment on function dbdp.predict_probability(bigint, int4[]) is 'the probability of the positive class by a released model; null for a null or not finite feature';
comment on function dbdp.predict_class(bigint, int4[]) is 'the class that a released model of a label with classes predicts; null for a null or not finite feature';
comment on function dbdp.predict_value(bigint, int4[]) is 'the number that a released model of a label with bounds predicts; null for a null or not finite feature';
comment on function dbdp.predict(bigint, numeric[]) is 'whether a released model predicts the positive class; null for a null or not finite feature';
comment on function dbdp.predict_probability(bigint, numeric[]) is 'the probability of the positive class by a released model; null for a null or not finite feature';
comment on function dbdp.predict_class(bigint, numeric[]) is 'the class that a released model of a label with classes predicts; null for a null or not finite feature';
comment on function dbdp.predict_value(bigint, numeric[]) is 'the number that a released model of a label with bounds predicts; null for a null or not finite feature';
comment on function dbdp.predict(bigint, anyelement) is 'whether a released model predicts the positive class for a row of any table with the model''s columns';
comment on function dbdp.predict_probability(bigint, anyelement) is 'the probability of the positive class for a row of any table with the model''s columns';
comment on function dbdp.predict_class(bigint, anyelement) is 'the class that a released model predicts for a row of any table with the model''s columns';
comment on function dbdp.predict_value(bigint, anyelement) is 'the number that a released model predicts for a row of any table with the model''s columns';
comment on function dbdp.predict(bigint, oid, bytea) is 'internal: predict with the session''s scorer for the bytes of an array or a row; null if the session has none';
comment on function dbdp.probability(bigint, oid, bytea) is 'internal: as predict(bigint, oid, bytea), the probability';
comment on function dbdp.predict_class(bigint, oid, bytea) is 'internal: as predict(bigint, oid, bytea), the class';
comment on function dbdp.predict_value(bigint, oid, bytea) is 'internal: as predict(bigint, oid, bytea), the number';
comment on function dbdp.predict_stored(bigint, bytea, float8) is 'internal: predict for the bytes of a stored row; called once for each row of a statement';
comment on function dbdp.probability_stored(bigint, bytea, float8) is 'internal: as predict_stored, the probability';
comment on function dbdp.predict_class_stored(bigint, bytea, float8) is 'internal: as predict_stored, the class';
comment on function dbdp.predict_value_stored(bigint, bytea, float8) is 'internal: as predict_stored, the number';
comment on function dbdp.knows(bigint, oid, text) is 'internal: whether the session has a scorer of a model for rows of a type';
comment on function dbdp.learn is 'internal: create the session''s scorer of a model from its description';
