from dbdp.interfaces.sql.functions import check_room

return check_room(*args)
