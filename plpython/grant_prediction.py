from dbdp.interfaces.sql.functions import grant_prediction

return grant_prediction(model, role)
