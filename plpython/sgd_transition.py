from dbdp.interfaces.sql.functions import sgd_transition

return sgd_transition(state, block, initial)
