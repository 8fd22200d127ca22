"""Spending: charges to budgets, the rights to make them, and reports of what remains."""
