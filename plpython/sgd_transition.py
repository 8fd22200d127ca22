from dbdp.server import sgd_transition

return sgd_transition(state, block, initial)
