-- dbdp @version@. Rendered from sql/ and plpython/; run by CREATE EXTENSION.

-- Created here and not by the control file, so that the schemas belong to the extension and are dropped with it; this
-- fails if another role created a schema of such a name before.
create schema dbdp; -- what users call, and the tables
create schema dbdp_internal; -- the functions that these, views, policies and clients call
