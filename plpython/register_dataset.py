from dbdp.server import register_dataset

return register_dataset(*args)
