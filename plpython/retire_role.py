from dbdp.interfaces.sql.functions import retire_role

return retire_role(former)
