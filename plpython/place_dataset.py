from dbdp.interfaces.sql.functions import place_dataset

return place_dataset(*args)
