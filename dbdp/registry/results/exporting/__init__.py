"""A released linear model in a form that needs no dbdp: one SQL function."""
