from dbdp.server import store_network

return store_network(dataset, network, parameters, receipt)
