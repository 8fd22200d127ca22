from dbdp.interfaces.sql.functions import transformed

return transformed(block, matrix)
