from dbdp.server import noisy_terminate

return noisy_terminate(state)
