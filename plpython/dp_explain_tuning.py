from dbdp.interfaces.sql.functions import dp_explain_tuning

return dp_explain_tuning(*args)
