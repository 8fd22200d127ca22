"""A dbdp server follows a table of a hosted PostgreSQL, where dbdp cannot be installed, or takes snapshots of it."""
