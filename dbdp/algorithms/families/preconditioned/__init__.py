"""Gradient descent over all rows, in the coordinates of a noisy second moment."""
