return SD["dbdp"].predict_value_stored(*args)
