"""Noise: exact samplers, and what is rounded to a grid before it."""
