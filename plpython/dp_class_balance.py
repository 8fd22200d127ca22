from dbdp.server import dp_class_balance

return dp_class_balance(*args)
