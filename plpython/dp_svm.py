from dbdp.interfaces.sql.functions import dp_svm

return dp_svm(*args)
