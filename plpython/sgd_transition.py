from dbdp.interfaces.sql.aggregates import sgd_transition

return sgd_transition(state, block, initial)
