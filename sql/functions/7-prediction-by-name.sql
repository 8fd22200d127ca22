-- Models by name. A statement looks a name up once and the session remembers its number until the next statement, which may
-- see another version; so a row costs what it costs by number.

create or replace function dbdp.model_number(model text) returns bigint
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
comment on function dbdp.model_number is 'internal: the number of the latest model of a name that the caller may predict with, or of ''name@version''; null without one';

create or replace function dbdp.remember(model text, number bigint, kind text, statement float8) returns bigint
language plpython3u
stable parallel safe cost 300
set search_path = pg_catalog, pg_temp
as $body$
@plpython remember@
$body$;
comment on function dbdp.remember is 'internal: remember the number of a model by its name until the statement ends, and return it';

create or replace function dbdp.knows(model text, row_type oid, kind text, statement float8) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython knows_named@
$body$;
comment on function dbdp.knows(text, oid, text, float8) is 'internal: whether the session has a scorer of a model by its name for rows of a type';

create or replace function dbdp.predict(text, oid, bytea, float8) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_named@
$body$;
comment on function dbdp.predict(text, oid, bytea, float8) is 'internal: as predict(bigint, oid, bytea), by name';

create or replace function dbdp.predict_stored(text, bytea, float8) returns boolean
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_stored_named@
$body$;
comment on function dbdp.predict_stored(text, bytea, float8) is 'internal: as predict_stored(bigint, bytea, float8), by name';

create or replace function dbdp.probability(text, oid, bytea, float8) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython probability_named@
$body$;
comment on function dbdp.probability(text, oid, bytea, float8) is 'internal: as probability(bigint, oid, bytea), by name';

create or replace function dbdp.probability_stored(text, bytea, float8) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython probability_stored_named@
$body$;
comment on function dbdp.probability_stored(text, bytea, float8) is 'internal: as probability_stored(bigint, bytea, float8), by name';

create or replace function dbdp.predict_class(text, oid, bytea, float8) returns text
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_class_named@
$body$;
comment on function dbdp.predict_class(text, oid, bytea, float8) is 'internal: as predict_class(bigint, oid, bytea), by name';

create or replace function dbdp.predict_class_stored(text, bytea, float8) returns text
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_class_stored_named@
$body$;
comment on function dbdp.predict_class_stored(text, bytea, float8) is 'internal: as predict_class_stored(bigint, bytea, float8), by name';

create or replace function dbdp.predict_value(text, oid, bytea, float8) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_value_named@
$body$;
comment on function dbdp.predict_value(text, oid, bytea, float8) is 'internal: as predict_value(bigint, oid, bytea), by name';

create or replace function dbdp.predict_value_stored(text, bytea, float8) returns float8
language plpython3u
stable strict parallel safe cost 300
as $body$
@plpython predict_value_stored_named@
$body$;
comment on function dbdp.predict_value_stored(text, bytea, float8) is 'internal: as predict_value_stored(bigint, bytea, float8), by name';

create or replace function dbdp.predict(model text, features float8[]) returns boolean
language sql
stable parallel safe
return coalesce(
  dbdp.predict(
    model, 0::oid, dbdp.array_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 0::oid, 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict(
      dbdp.remember(model, dbdp.model_number(model), 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

create or replace function dbdp.predict(model text, features float4[]) returns boolean
language sql
stable parallel safe
return coalesce(
  dbdp.predict(
    model, 0::oid, dbdp.array_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 0::oid, 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict(
      dbdp.remember(model, dbdp.model_number(model), 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

create or replace function dbdp.predict(model text, features int4[]) returns boolean
language sql
stable parallel safe
return dbdp.predict(model, features::float8[]);

create or replace function dbdp.predict(model text, features numeric[]) returns boolean
language sql
stable parallel safe
return dbdp.predict(model, features::float8[]);

create or replace function dbdp.predict(model text, features anyelement) returns boolean
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.predict_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.predict(
    model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(
      model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'binary',
      pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict(
      dbdp.remember(
        model, dbdp.model_number(model), 'binary',
        pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end)
$body$;
comment on function dbdp.predict(text, float8[]) is 'whether a released model predicts the positive class, by its name; null for a null or not finite feature';
comment on function dbdp.predict(text, float4[]) is 'whether a released model predicts the positive class, by its name; null for a null or not finite feature';
comment on function dbdp.predict(text, int4[]) is 'whether a released model predicts the positive class, by its name; null for a null or not finite feature';
comment on function dbdp.predict(text, numeric[]) is 'whether a released model predicts the positive class, by its name; null for a null or not finite feature';
comment on function dbdp.predict(text, anyelement) is 'whether a released model predicts the positive class, by its name, for a row of any table with the model''s columns';

create or replace function dbdp.predict_probability(model text, features float8[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.probability(
    model, 0::oid, dbdp.array_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 0::oid, 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_probability(
      dbdp.remember(model, dbdp.model_number(model), 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

create or replace function dbdp.predict_probability(model text, features float4[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.probability(
    model, 0::oid, dbdp.array_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 0::oid, 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_probability(
      dbdp.remember(model, dbdp.model_number(model), 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

create or replace function dbdp.predict_probability(model text, features int4[]) returns float8
language sql
stable parallel safe
return dbdp.predict_probability(model, features::float8[]);

create or replace function dbdp.predict_probability(model text, features numeric[]) returns float8
language sql
stable parallel safe
return dbdp.predict_probability(model, features::float8[]);

create or replace function dbdp.predict_probability(model text, features anyelement) returns float8
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.probability_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.probability(
    model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(
      model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'binary',
      pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_probability(
      dbdp.remember(
        model, dbdp.model_number(model), 'binary',
        pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end)
$body$;
comment on function dbdp.predict_probability(text, float8[]) is 'the probability of the positive class by a released model, by its name; null for a null or not finite feature';
comment on function dbdp.predict_probability(text, float4[]) is 'the probability of the positive class by a released model, by its name; null for a null or not finite feature';
comment on function dbdp.predict_probability(text, int4[]) is 'the probability of the positive class by a released model, by its name; null for a null or not finite feature';
comment on function dbdp.predict_probability(text, numeric[]) is 'the probability of the positive class by a released model, by its name; null for a null or not finite feature';
comment on function dbdp.predict_probability(text, anyelement) is 'the probability of the positive class by a released model, by its name, for a row of any table with the model''s columns';

create or replace function dbdp.predict_class(model text, features float8[]) returns text
language sql
stable parallel safe
return coalesce(
  dbdp.predict_class(
    model, 0::oid, dbdp.array_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 0::oid, 'classes', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_class(
      dbdp.remember(model, dbdp.model_number(model), 'classes', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

create or replace function dbdp.predict_class(model text, features float4[]) returns text
language sql
stable parallel safe
return coalesce(
  dbdp.predict_class(
    model, 0::oid, dbdp.array_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 0::oid, 'classes', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_class(
      dbdp.remember(model, dbdp.model_number(model), 'classes', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

create or replace function dbdp.predict_class(model text, features int4[]) returns text
language sql
stable parallel safe
return dbdp.predict_class(model, features::float8[]);

create or replace function dbdp.predict_class(model text, features numeric[]) returns text
language sql
stable parallel safe
return dbdp.predict_class(model, features::float8[]);

create or replace function dbdp.predict_class(model text, features anyelement) returns text
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.predict_class_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.predict_class(
    model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(
      model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'classes',
      pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_class(
      dbdp.remember(
        model, dbdp.model_number(model), 'classes',
        pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end)
$body$;
comment on function dbdp.predict_class(text, float8[]) is 'the class that a released model of a label with classes predicts, by its name; null for a null or not finite feature';
comment on function dbdp.predict_class(text, float4[]) is 'the class that a released model of a label with classes predicts, by its name; null for a null or not finite feature';
comment on function dbdp.predict_class(text, int4[]) is 'the class that a released model of a label with classes predicts, by its name; null for a null or not finite feature';
comment on function dbdp.predict_class(text, numeric[]) is 'the class that a released model of a label with classes predicts, by its name; null for a null or not finite feature';
comment on function dbdp.predict_class(text, anyelement) is 'the class that a released model of a label with classes predicts, by its name, for a row of any table with the model''s columns';

create or replace function dbdp.predict_value(model text, features float8[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.predict_value(
    model, 0::oid, dbdp.array_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 0::oid, 'real', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_value(
      dbdp.remember(model, dbdp.model_number(model), 'real', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

create or replace function dbdp.predict_value(model text, features float4[]) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.predict_value(
    model, 0::oid, dbdp.array_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 0::oid, 'real', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_value(
      dbdp.remember(model, dbdp.model_number(model), 'real', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

create or replace function dbdp.predict_value(model text, features int4[]) returns float8
language sql
stable parallel safe
return dbdp.predict_value(model, features::float8[]);

create or replace function dbdp.predict_value(model text, features numeric[]) returns float8
language sql
stable parallel safe
return dbdp.predict_value(model, features::float8[]);

create or replace function dbdp.predict_value(model text, features anyelement) returns float8
language sql
stable parallel safe
as $body$
select coalesce(
  dbdp.predict_value_stored(
    model, dbdp.row_bytes(features), pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  dbdp.predict_value(
    model, pg_catalog.pg_typeof(features)::pg_catalog.oid, pg_catalog.record_send(features),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(
      model, pg_catalog.pg_typeof(features)::pg_catalog.oid, 'real',
      pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_value(
      dbdp.remember(
        model, dbdp.model_number(model), 'real',
        pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end)
$body$;
comment on function dbdp.predict_value(text, float8[]) is 'the number that a released model of a label with bounds predicts, by its name; null for a null or not finite feature';
comment on function dbdp.predict_value(text, float4[]) is 'the number that a released model of a label with bounds predicts, by its name; null for a null or not finite feature';
comment on function dbdp.predict_value(text, int4[]) is 'the number that a released model of a label with bounds predicts, by its name; null for a null or not finite feature';
comment on function dbdp.predict_value(text, numeric[]) is 'the number that a released model of a label with bounds predicts, by its name; null for a null or not finite feature';
comment on function dbdp.predict_value(text, anyelement) is 'the number that a released model of a label with bounds predicts, by its name, for a row of any table with the model''s columns';
