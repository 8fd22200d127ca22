from dbdp.interfaces.sql.aggregates import measured_gradient_transition

return measured_gradient_transition(total, block, lengths, model, objective, clip)
