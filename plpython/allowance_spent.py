from dbdp.interfaces.sql.functions import allowance_spent

return allowance_spent(*args)
