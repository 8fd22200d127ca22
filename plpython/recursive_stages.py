from dbdp.interfaces.sql.functions import recursive_stages

return recursive_stages(blocks, model, centre, objective, stages)
