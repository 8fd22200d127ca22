from dbdp.interfaces.sql.aggregates import noisy_terminate

return noisy_terminate(state)
