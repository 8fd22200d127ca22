from dbdp.server import dp_explain_tuning

return dp_explain_tuning(*args)
