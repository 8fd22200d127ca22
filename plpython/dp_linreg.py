from dbdp.server import dp_linreg

return dp_linreg(*args)
