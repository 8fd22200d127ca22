from dbdp.interfaces.sql.functions import records_on_pages

return records_on_pages(dataset, first, last)
