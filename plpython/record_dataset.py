from dbdp.server import record_dataset

return record_dataset(*args)
