"""Algorithms that select a whole model privately: from the classes, or from a population."""
