"""Noise: exact samplers, and exactly rounded continuous noise."""
