from dbdp.interfaces.sql.functions import loss_transition

return loss_transition(totals, block, models, objective, limit)
