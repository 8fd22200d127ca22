return SD["dbdp"].predict_named(model, row_type, features, statement)
