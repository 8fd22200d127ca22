return GD["dbdp"].decide_stored(model, stored)
