from dbdp.interfaces.sql.functions import sgd_terminate

return sgd_terminate(state)
