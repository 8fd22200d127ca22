from dbdp.server import renew_budget

return renew_budget(*args)
