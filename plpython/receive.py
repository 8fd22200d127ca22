from dbdp.interfaces.sql.functions import receive

return receive(name, piece)
