return SD["dbdp"].probability_named(model, row_type, features, statement)
