from dbdp.interfaces.sql.functions import tally_terminate

return tally_terminate(*args)
