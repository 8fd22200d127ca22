from dbdp.server import group_sizes

return group_sizes(dataset, group_by, groups)
