"""Algorithms that add noise in every update of SGD."""
