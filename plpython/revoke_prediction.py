from dbdp.interfaces.sql.functions import revoke_prediction

return revoke_prediction(model, role)
