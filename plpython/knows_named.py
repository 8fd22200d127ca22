return SD["dbdp"].knows_named(model, row_type, kind, statement)
