return SD["dbdp"].decide_stored(model, stored, statement)
