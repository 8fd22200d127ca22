return SD["dbdp"].predict_stored(*args)
