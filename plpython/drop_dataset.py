from dbdp.server import drop_dataset

return drop_dataset(name)
