"""Neural networks: layers, and networks made of them."""
