from dbdp.interfaces.sql.functions import dp_confusion

return dp_confusion(*args)
