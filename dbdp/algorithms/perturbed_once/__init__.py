"""Algorithms that train exactly, or minimise, and perturb once."""
