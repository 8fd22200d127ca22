return SD["dbdp"].predict_stored(model, stored, statement)
