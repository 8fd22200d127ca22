from dbdp.scoring import learn

return learn(model, row_type, description, kind)
