from dbdp.server import label_transition

return label_transition(counts, block, dimension, classes)
