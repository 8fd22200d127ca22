"""Algorithms that add noise once, to the exact result of a training."""
