"""Algorithms that add noise once: to the result, or to the objective."""
