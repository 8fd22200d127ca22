return SD["dbdp"].predict_class(*args)
