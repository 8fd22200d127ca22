from dbdp.server import resume

return resume(name)
