from dbdp.interfaces.sql.functions import rows_by_pages

return rows_by_pages(dataset)
