"""Accounting: events, their Rényi divergences, composition, calibration and budgets."""
