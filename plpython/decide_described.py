from dbdp.scoring import decide_described

return decide_described(model, kind, features, description)
