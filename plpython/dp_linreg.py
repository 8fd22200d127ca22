from dbdp.interfaces.sql.functions import dp_linreg

return dp_linreg(*args)
