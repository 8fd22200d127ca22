from dbdp.interfaces.sql.functions import deal_groups

return deal_groups(dataset, target, group_by, groups, sizes)
