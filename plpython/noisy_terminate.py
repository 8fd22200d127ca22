from dbdp.interfaces.sql.functions import noisy_terminate

return noisy_terminate(state)
