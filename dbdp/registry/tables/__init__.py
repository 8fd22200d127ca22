"""Tables: how the rows of a dataset's table, and its units of privacy, are read."""
