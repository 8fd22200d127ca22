from dbdp.interfaces.sql.functions import label_transition

return label_transition(counts, block, dimension, classes)
