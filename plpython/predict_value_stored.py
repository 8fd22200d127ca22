return SD["dbdp"].predict_value_stored(model, stored, statement)
