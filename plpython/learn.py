from dbdp.interfaces.sql.scoring import learn

return learn(model, row_type, description, kind)
