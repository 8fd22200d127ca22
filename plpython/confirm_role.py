from dbdp.interfaces.sql.functions import confirm_role

return confirm_role(former, role)
