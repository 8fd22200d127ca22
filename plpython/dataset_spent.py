from dbdp.interfaces.sql.functions import dataset_spent

return dataset_spent(*args)
