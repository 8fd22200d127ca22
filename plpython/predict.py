return SD["dbdp"].predict(*args)
