"""Algorithms that add noise once, to the objective that they minimise."""
