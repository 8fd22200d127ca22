from dbdp.server import tally_terminate

return tally_terminate(*args)
