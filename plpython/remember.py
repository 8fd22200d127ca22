return SD["dbdp"].remember(model, number, kind, statement)
