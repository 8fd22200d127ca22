from dbdp.server import dp_explain

return dp_explain(*args)
