return SD["dbdp"].probability_named(*args)
