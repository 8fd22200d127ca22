from dbdp.interfaces.sql.functions import resume

return resume(name)
