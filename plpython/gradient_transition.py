from dbdp.interfaces.sql.functions import gradient_transition

return gradient_transition(total, block, model, objective, clip)
