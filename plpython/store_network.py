from dbdp.interfaces.sql.functions import store_network

return store_network(dataset, network, parameters, receipt)
