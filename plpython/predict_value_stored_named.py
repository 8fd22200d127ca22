return SD["dbdp"].predict_value_stored_named(model, stored, statement)
