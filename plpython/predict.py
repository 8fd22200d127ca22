return SD["dbdp"].predict(model, row_type, features)
