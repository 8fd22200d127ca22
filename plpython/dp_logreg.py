from dbdp.server import dp_logreg

return dp_logreg(*args)
