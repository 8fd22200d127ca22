from dbdp.server import register_dataset

return register_dataset(
    name,
    source,
    label,
    positive,
    features,
    epsilon,
    delta,
    negative,
    intercept,
    mode,
    classes,
    label_bounds,
    unit,
    max_rows,
    public_columns,
)
