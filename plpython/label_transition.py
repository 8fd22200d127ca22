from dbdp.interfaces.sql.aggregates import label_transition

return label_transition(counts, block, dimension, classes)
