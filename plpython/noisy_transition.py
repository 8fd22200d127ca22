from dbdp.server import noisy_transition

return noisy_transition(state, block, initial)
