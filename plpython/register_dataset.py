from dbdp.interfaces.sql.functions import register_dataset

return register_dataset(*args)
