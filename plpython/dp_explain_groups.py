from dbdp.interfaces.sql.functions import dp_explain_groups

return dp_explain_groups(*args)
