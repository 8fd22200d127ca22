return SD["dbdp"].predict_class_stored_named(model, stored, statement)
