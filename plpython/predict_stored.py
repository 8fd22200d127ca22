return GD["dbdp"].predict_stored(model, stored)
