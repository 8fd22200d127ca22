from dbdp.interfaces.sql.functions import shuffle

return shuffle(dataset, blocks, options)
