return SD["dbdp"].probability_stored(*args)
