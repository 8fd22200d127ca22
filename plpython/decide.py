return GD["dbdp"].decide(model, kind, features)
