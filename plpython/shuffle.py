from dbdp.server import shuffle

return shuffle(dataset, blocks, options)
