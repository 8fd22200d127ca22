from dbdp.interfaces.sql.functions import about

return about()
