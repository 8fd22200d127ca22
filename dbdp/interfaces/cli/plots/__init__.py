"""Plots on the command line: their numbers, and the drawing."""
