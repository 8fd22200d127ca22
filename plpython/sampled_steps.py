from dbdp.interfaces.sql.functions import sampled_steps

return sampled_steps(dataset, states, options)
