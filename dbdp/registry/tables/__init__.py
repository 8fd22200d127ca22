"""The table behind a dataset: how its rows, and the units of privacy, are read."""
