from dbdp.server import sgd_terminate

return sgd_terminate(state)
