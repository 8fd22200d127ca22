from dbdp.interfaces.sql.functions import second_moment_transition

return second_moment_transition(total, block, dimension)
