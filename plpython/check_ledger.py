from dbdp.server import check_ledger

return check_ledger(*args)
