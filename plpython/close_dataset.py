from dbdp.server import close_dataset

return close_dataset(name)
