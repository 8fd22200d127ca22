from dbdp.server import record_dataset

return record_dataset(name, source, declaration, epsilon, delta, mode, unit, max_rows)
