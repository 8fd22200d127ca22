"""What the server's functions call: the standard library and NumPy only."""
