from dbdp.server import budget

return budget(*args)
