from dbdp.interfaces.sql.aggregates import gradient_transition

return gradient_transition(total, block, model, objective, clip)
