from dbdp.server import dp_confusion

return dp_confusion(*args)
