return GD["dbdp"].predict(model, row_type, features)
