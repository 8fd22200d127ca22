from dbdp.interfaces.sql.functions import check_ledger

return check_ledger(*args)
