return SD["dbdp"].predict_value_named(*args)
