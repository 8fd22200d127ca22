return SD["dbdp"].probability(*args)
