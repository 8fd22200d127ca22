from dbdp.server import table_rows

return table_rows(*args)
