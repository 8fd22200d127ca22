return SD["dbdp"].probability_stored(model, stored, statement)
