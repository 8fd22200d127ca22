from dbdp.interfaces.sql.functions import dp_explain

return dp_explain(*args)
