return SD["dbdp"].predict_class_stored(model, stored, statement)
