from dbdp.interfaces.sql.aggregates import tally_transition

return tally_transition(*args)
