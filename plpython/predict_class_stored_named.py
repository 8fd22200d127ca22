return SD["dbdp"].predict_class_stored_named(*args)
