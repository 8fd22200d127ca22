return SD["dbdp"].fits(model, row_type, features, kind)
