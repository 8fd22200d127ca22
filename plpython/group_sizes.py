from dbdp.interfaces.sql.functions import group_sizes

return group_sizes(dataset, group_by, groups)
