"""Spending: charges to budgets and their odometers, the rights to make them, and reports of what remains."""
