return SD["dbdp"].predict_value_stored_named(*args)
