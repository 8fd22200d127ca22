return SD["dbdp"].predict_value_named(model, row_type, features, statement)
