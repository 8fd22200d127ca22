from dbdp.server import grant_prediction

return grant_prediction(model, role)
