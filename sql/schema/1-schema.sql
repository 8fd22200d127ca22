-- dbdp @version@. Made from sql/ and plpython/; run by CREATE EXTENSION.

-- Made here and not by the control file, so that it belongs to the extension and goes with it; this
-- fails where another role prepared a schema of that name.
create schema dbdp;
