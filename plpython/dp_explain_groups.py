from dbdp.server import dp_explain_groups

return dp_explain_groups(*args)
