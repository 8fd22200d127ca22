from dbdp.interfaces.sql.functions import summary_correlations

return summary_correlations(*args)
