from dbdp.server import revoke_training

return revoke_training(dataset, role)
