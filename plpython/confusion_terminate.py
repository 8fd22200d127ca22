from dbdp.server import confusion_terminate

return confusion_terminate(counts)
