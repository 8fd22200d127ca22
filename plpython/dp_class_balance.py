from dbdp.interfaces.sql.functions import dp_class_balance

return dp_class_balance(*args)
