from dbdp.interfaces.sql.functions import grant_training

return grant_training(dataset, role, epsilon)
