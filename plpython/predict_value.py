return SD["dbdp"].predict_value(model, row_type, features)
