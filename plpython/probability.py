return SD["dbdp"].probability(model, row_type, features)
