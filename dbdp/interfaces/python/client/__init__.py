"""A connection to a server with dbdp: one file for each person who uses it, and one for connecting."""
