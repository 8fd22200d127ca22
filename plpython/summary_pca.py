from dbdp.interfaces.sql.functions import summary_pca

return summary_pca(*args)
