"""Counts over packed rows, by their labels and by scores."""
