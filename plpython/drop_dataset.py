from dbdp.interfaces.sql.functions import drop_dataset

return drop_dataset(name)
