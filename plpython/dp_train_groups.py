from dbdp.interfaces.sql.functions import dp_train_groups

return dp_train_groups(*args)
