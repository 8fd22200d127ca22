return SD["dbdp"].predict_value(*args)
