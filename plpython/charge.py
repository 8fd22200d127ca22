from dbdp.server import charge

return charge(dataset, plan)
