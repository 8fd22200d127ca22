from dbdp.interfaces.sql.functions import forget_blocks

return forget_blocks(blocks)
