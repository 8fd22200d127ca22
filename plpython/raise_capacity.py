from dbdp.interfaces.sql.functions import raise_capacity

return raise_capacity(*args)
