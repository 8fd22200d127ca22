from dbdp.interfaces.sql.functions import noisy_transition

return noisy_transition(state, block, initial)
