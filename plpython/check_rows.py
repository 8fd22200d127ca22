from dbdp.server import check_rows

return check_rows(dataset)
