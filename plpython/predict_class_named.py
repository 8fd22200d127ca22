return SD["dbdp"].predict_class_named(model, row_type, features, statement)
