create schema bismarck;

create function bismarck.logreg_step(
    state internal,
    x float8[],
    y float8,
    initial float8[],
    batch_size int,
    step_size float8,
    regularisation float8
)
returns internal
as 'MODULE_PATHNAME', 'logreg_step'
language c;

create function bismarck.logreg_model(state internal)
returns float8[]
as 'MODULE_PATHNAME', 'logreg_model'
language c;

create aggregate bismarck.logreg_epoch(
    x float8[],
    y float8,
    initial float8[],
    batch_size int,
    step_size float8,
    regularisation float8
) (
    sfunc = bismarck.logreg_step,
    stype = internal,
    finalfunc = bismarck.logreg_model,
    finalfunc_modify = read_write
);
