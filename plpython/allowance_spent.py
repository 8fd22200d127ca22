from dbdp.server import allowance_spent

return allowance_spent(allowance)
