from dbdp.interfaces.sql.functions import dp_summarize

return dp_summarize(*args)
