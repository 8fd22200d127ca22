from dbdp.server import store_release

return store_release(dataset, coefficients, intercepts, receipt)
