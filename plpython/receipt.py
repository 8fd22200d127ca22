from dbdp.interfaces.sql.functions import receipt

return receipt(model)
