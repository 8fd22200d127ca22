from dbdp.server import dp_svm

return dp_svm(*args)
