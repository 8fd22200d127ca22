from dbdp.interfaces.sql.functions import renew_budget

return renew_budget(*args)
