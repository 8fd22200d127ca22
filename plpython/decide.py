return SD["dbdp"].decide(model, row_type, features)
