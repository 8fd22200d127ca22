from dbdp.interfaces.sql.scoring import try_no_model

return try_no_model(model, known)
