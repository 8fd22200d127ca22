-- dbdp @version@. Rendered from sql/ and plpython/; run by CREATE EXTENSION.

-- Created here and not by the control file, so that the schema belongs to the extension and is dropped with it; this
-- fails if another role created a schema of that name before.
create schema dbdp;
