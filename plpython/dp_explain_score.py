from dbdp.server import dp_explain_score

return dp_explain_score(*args)
