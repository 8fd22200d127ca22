return GD["dbdp"].knows(model, row_type)
