from dbdp.interfaces.sql.functions import charge

return charge(dataset, plan)
