from dbdp.server import deal_groups

return deal_groups(dataset, blocks, group_by, groups, sizes)
