from dbdp.server import record_outcome

return record_outcome(*args)
