from dbdp.interfaces.sql.aggregates import transformed

return transformed(block, matrix)
