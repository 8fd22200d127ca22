from dbdp.interfaces.sql.functions import redeclare

return redeclare(*args)
