return SD["dbdp"].predict_class_stored(*args)
