from dbdp.interfaces.sql.functions import dp_explain_score

return dp_explain_score(*args)
