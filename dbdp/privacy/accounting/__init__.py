"""Accounting: events, their Rényi divergences, composition, units of several rows, calibration and budgets."""
