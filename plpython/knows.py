return SD["dbdp"].knows(model, row_type, kind)
