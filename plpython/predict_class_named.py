return SD["dbdp"].predict_class_named(*args)
