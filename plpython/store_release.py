from dbdp.interfaces.sql.functions import store_release

return store_release(dataset, coefficients, intercepts, receipt)
