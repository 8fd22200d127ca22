"""A table to packed blocks in a secret order, in bounded memory."""
