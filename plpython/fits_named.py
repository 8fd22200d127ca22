return SD["dbdp"].fits_named(model, row_type, features, kind, statement)
