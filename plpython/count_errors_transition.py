from dbdp.interfaces.sql.aggregates import count_errors_transition

return count_errors_transition(errors, block, models, outputs)
