from dbdp.interfaces.sql.functions import record_outcome

return record_outcome(*args)
