from dbdp.interfaces.sql.functions import summary_linreg

return summary_linreg(*args)
