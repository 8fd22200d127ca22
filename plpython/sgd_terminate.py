from dbdp.interfaces.sql.aggregates import sgd_terminate

return sgd_terminate(state)
