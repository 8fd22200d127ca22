"""Views: templates, bars of budgets, receipts, refusals."""
