from dbdp.server import dp_tune

return dp_tune(*args)
