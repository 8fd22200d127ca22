"""Algorithms that learn from counts of the rows which are released once."""
