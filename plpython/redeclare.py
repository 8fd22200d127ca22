from dbdp.server import redeclare

return redeclare(*args)
