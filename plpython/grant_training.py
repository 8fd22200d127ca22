from dbdp.server import grant_training

return grant_training(dataset, role, epsilon)
