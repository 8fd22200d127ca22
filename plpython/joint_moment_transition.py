from dbdp.interfaces.sql.aggregates import joint_moment_transition

return joint_moment_transition(total, block, dimension, labels, weight)
