from dbdp.interfaces.sql.functions import dp_score

return dp_score(*args)
