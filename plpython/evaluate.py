from dbdp.interfaces.sql.functions import evaluate

return evaluate(model, dataset, epsilon, delta, bins)
