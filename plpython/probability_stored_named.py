return SD["dbdp"].probability_stored_named(model, stored, statement)
