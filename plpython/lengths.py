from dbdp.interfaces.sql.aggregates import lengths

return lengths(block, matrix)
