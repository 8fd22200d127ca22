from dbdp.interfaces.sql.scoring import try_learn

return try_learn(model, row_type, description, kind, features)
