from dbdp.server import loss_transition

return loss_transition(totals, block, models, objective, limit)
