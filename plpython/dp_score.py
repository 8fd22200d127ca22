from dbdp.server import dp_score

return dp_score(*args)
