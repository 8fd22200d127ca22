from dbdp.server import dp_train_groups

return dp_train_groups(*args)
