"""Differentially private machine learning inside PostgreSQL."""

__version__ = "0.1.0"
