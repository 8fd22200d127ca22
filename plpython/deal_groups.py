from dbdp.server import deal_groups

return deal_groups(dataset, target, group_by, groups, sizes)
