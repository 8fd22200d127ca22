"""Noisy counts: of errors, of classes, of scores, of values."""
