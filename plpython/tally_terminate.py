from dbdp.interfaces.sql.aggregates import tally_terminate

return tally_terminate(*args)
