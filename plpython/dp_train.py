from dbdp.server import dp_train

return dp_train(*args)
