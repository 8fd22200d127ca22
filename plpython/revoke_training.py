from dbdp.interfaces.sql.functions import revoke_training

return revoke_training(dataset, role)
