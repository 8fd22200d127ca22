from dbdp.interfaces.sql.aggregates import loss_transition

return loss_transition(totals, block, models, objective, limit)
