from dbdp.interfaces.sql.functions import tally_transition

return tally_transition(*args)
