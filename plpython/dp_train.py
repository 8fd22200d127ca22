from dbdp.interfaces.sql.functions import dp_train

return dp_train(*args)
