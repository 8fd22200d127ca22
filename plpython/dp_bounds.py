from dbdp.interfaces.sql.functions import dp_bounds

return dp_bounds(*args)
