from dbdp.interfaces.sql.functions import budget

return budget(*args)
