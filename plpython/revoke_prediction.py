from dbdp.server import revoke_prediction

return revoke_prediction(model, role)
