from dbdp.interfaces.sql.aggregates import noisy_transition

return noisy_transition(state, block, initial)
