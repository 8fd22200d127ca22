from dbdp.server import confusion_transition

return confusion_transition(counts, block, models, outputs, network)
