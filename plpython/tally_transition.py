from dbdp.server import tally_transition

return tally_transition(*args)
