-- Rows as JSON, for those of joins, subqueries and CTEs: `to_jsonb(x)`. The number 3802 is the type's OID.

create or replace function dbdp.predict(model bigint, features jsonb) returns boolean
language sql
stable parallel safe
return coalesce(
  dbdp.predict(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8')),
  case
    when dbdp.knows(model, 3802::oid, 'binary') then null
    when dbdp.learn(model, 3802::oid, dbdp.model_description(model), 'binary')
    then dbdp.predict(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'))
  end);

create or replace function dbdp.predict(model text, features jsonb) returns boolean
language sql
stable parallel safe
return coalesce(
  dbdp.predict(
    model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 3802::oid, 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict(
      dbdp.remember(model, dbdp.model_number(model), 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

comment on function dbdp.predict(bigint, jsonb) is 'whether a released model predicts the positive class, for an object with the model''s columns, such as to_jsonb of a row; or for an array';
comment on function dbdp.predict(text, jsonb) is 'whether a released model predicts the positive class, by its name, for an object with the model''s columns, such as to_jsonb of a row; or for an array';

create or replace function dbdp.predict_probability(model bigint, features jsonb) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.probability(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8')),
  case
    when dbdp.knows(model, 3802::oid, 'binary') then null
    when dbdp.learn(model, 3802::oid, dbdp.model_description(model), 'binary')
    then dbdp.probability(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'))
  end);

create or replace function dbdp.predict_probability(model text, features jsonb) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.probability(
    model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 3802::oid, 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_probability(
      dbdp.remember(model, dbdp.model_number(model), 'binary', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

comment on function dbdp.predict_probability(bigint, jsonb) is 'the probability of the positive class by a released model, for an object with the model''s columns, such as to_jsonb of a row; or for an array';
comment on function dbdp.predict_probability(text, jsonb) is 'the probability of the positive class by a released model, by its name, for an object with the model''s columns, such as to_jsonb of a row; or for an array';

create or replace function dbdp.predict_class(model bigint, features jsonb) returns text
language sql
stable parallel safe
return coalesce(
  dbdp.predict_class(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8')),
  case
    when dbdp.knows(model, 3802::oid, 'classes') then null
    when dbdp.learn(model, 3802::oid, dbdp.model_description(model), 'classes')
    then dbdp.predict_class(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'))
  end);

create or replace function dbdp.predict_class(model text, features jsonb) returns text
language sql
stable parallel safe
return coalesce(
  dbdp.predict_class(
    model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 3802::oid, 'classes', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_class(
      dbdp.remember(model, dbdp.model_number(model), 'classes', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

comment on function dbdp.predict_class(bigint, jsonb) is 'the class that a released model of a label with classes predicts, for an object with the model''s columns, such as to_jsonb of a row; or for an array';
comment on function dbdp.predict_class(text, jsonb) is 'the class that a released model of a label with classes predicts, by its name, for an object with the model''s columns, such as to_jsonb of a row; or for an array';

create or replace function dbdp.predict_value(model bigint, features jsonb) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.predict_value(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8')),
  case
    when dbdp.knows(model, 3802::oid, 'real') then null
    when dbdp.learn(model, 3802::oid, dbdp.model_description(model), 'real')
    then dbdp.predict_value(model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'))
  end);

create or replace function dbdp.predict_value(model text, features jsonb) returns float8
language sql
stable parallel safe
return coalesce(
  dbdp.predict_value(
    model, 3802::oid, pg_catalog.convert_to(features::text, 'UTF8'),
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())),
  case
    when dbdp.knows(model, 3802::oid, 'real', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())) then null
    else dbdp.predict_value(
      dbdp.remember(model, dbdp.model_number(model), 'real', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())), features)
  end);

comment on function dbdp.predict_value(bigint, jsonb) is 'the number that a released model of a label with bounds predicts, for an object with the model''s columns, such as to_jsonb of a row; or for an array';
comment on function dbdp.predict_value(text, jsonb) is 'the number that a released model of a label with bounds predicts, by its name, for an object with the model''s columns, such as to_jsonb of a row; or for an array';
