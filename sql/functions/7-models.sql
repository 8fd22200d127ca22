-- What a model is, for a reader: with the caller's rights, which read released models alone. Volatile, so that a statement
-- that trains a model can read it too.
@each type: bigint; text do@
create or replace function dbdp.weights(model @type@) returns table (feature text, class text, coefficient float8, standard_error float8)
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@refusing model_functions.weights@
$body$;
@end@
comment on function dbdp.weights(bigint) is
'the coefficients of a linear model, per unit of a column, and its intercepts, with the standard error from the noise for privacy, if it is known';
comment on function dbdp.weights(text) is 'weights of a model by its name, or by name@version';

@each type: bigint; text do@
create or replace function dbdp.shapes(model @type@) returns table (class text, column_name text, x float8, category text, contribution float8, lower float8, upper float8)
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@refusing model_functions.shapes@
$body$;
@end@
comment on function dbdp.shapes(bigint) is
'how much each value of a column adds to the score of a linear model, with a band that holds at least 95 % of the noise in its standard errors, if they are known';
comment on function dbdp.shapes(text) is 'shapes of a model by its name, or by name@version';

@each type: bigint; text do@
create or replace function dbdp.importance(model @type@) returns table (class text, column_name text, importance float8, lower float8, upper float8)
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@refusing model_functions.importance@
$body$;
@end@
comment on function dbdp.importance(bigint) is
'the standard deviation of what each column adds to the score of a linear model, where all its values are equally frequent, with a band that holds at least 95 % of the noise in the standard errors';
comment on function dbdp.importance(text) is 'importance of the columns of a model by its name, or by name@version';

@each type: bigint; text do@
create or replace function dbdp.export_sql(model @type@, name text default null, dialect text default 'postgresql') returns text
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@refusing model_functions.export_sql@
$body$;
@end@
comment on function dbdp.export_sql(bigint, text, text) is
'statements that create a function with the predictions of a linear model, for a PostgreSQL without dbdp, or a macro for duckdb; name is that of the function';
comment on function dbdp.export_sql(text, text, text) is 'the function of a model by its name, or by name@version';

@each type: bigint; text do@
create or replace function dbdp.receipt(model @type@) returns table (entry text, value text)
language plpython3u
set search_path = pg_catalog, pg_temp
as $body$
@refusing model_functions.receipt@
$body$;
@end@
comment on function dbdp.receipt(bigint) is 'the receipt of a released model, or summary, one entry in each row: the plan and its cost';
comment on function dbdp.receipt(text) is 'receipt of a model by its name, or by name@version';

@each type: bigint; text do@
create or replace function dbdp.receipt(model @type@, entry text) returns text
language sql
set search_path = pg_catalog, pg_temp
as $body$
select r.value from dbdp.receipt($1) as r where r.entry = $2
$body$;
@end@
comment on function dbdp.receipt(bigint, text) is 'an entry of the receipt of a released model, or summary. null if it has no entry of that name';
comment on function dbdp.receipt(text, text) is 'an entry of the receipt of a model by its name, or by name@version';
