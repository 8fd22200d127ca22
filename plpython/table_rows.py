from dbdp.interfaces.sql.functions import table_rows

return table_rows(*args)
