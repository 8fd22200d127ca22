from dbdp.server import about

return about()
