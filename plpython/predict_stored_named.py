return SD["dbdp"].predict_stored_named(model, stored, statement)
