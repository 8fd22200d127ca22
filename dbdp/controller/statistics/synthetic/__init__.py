"""Synthetic rows from a released summary: a maximum-entropy model of its tables of two columns, and draws from it."""
