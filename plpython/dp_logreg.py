from dbdp.interfaces.sql.functions import dp_logreg

return dp_logreg(*args)
