return SD["dbdp"].predict_named(*args)
