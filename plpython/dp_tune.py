from dbdp.interfaces.sql.functions import dp_tune

return dp_tune(*args)
