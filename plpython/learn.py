from dbdp.interfaces.sql import outcomes
from dbdp.interfaces.sql.scoring import learn

return outcomes.recorded(learn, *args)
