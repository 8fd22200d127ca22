return SD["dbdp"].predict_class(model, row_type, features)
