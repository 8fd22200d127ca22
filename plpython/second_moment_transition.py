from dbdp.interfaces.sql.aggregates import second_moment_transition

return second_moment_transition(total, block, dimension)
