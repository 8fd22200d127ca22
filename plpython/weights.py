from dbdp.interfaces.sql.functions import weights

return weights(model)
