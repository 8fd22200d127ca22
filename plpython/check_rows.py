from dbdp.interfaces.sql.functions import check_rows

return check_rows(dataset)
