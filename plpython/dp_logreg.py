from dbdp.server import dp_logreg

return dp_logreg(dataset, epsilon, delta, epochs, batch_size, schedule, step_size, regularisation, mechanism, algorithm)
