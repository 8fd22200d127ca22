return GD["dbdp"].decide(model, row_type, features)
