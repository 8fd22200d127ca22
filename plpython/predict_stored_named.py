return SD["dbdp"].predict_stored_named(*args)
