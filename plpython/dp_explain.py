from dbdp.server import dp_explain

return dp_explain(dataset, epsilon, delta, epochs, batch_size, schedule, step_size, regularisation, mechanism, algorithm)
