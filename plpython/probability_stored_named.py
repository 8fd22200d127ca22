return SD["dbdp"].probability_stored_named(*args)
