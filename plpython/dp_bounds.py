from dbdp.server import dp_bounds

return dp_bounds(*args)
