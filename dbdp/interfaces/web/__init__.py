"""The web page for data owners, on this machine only: datasets, budgets, ledger, models, plans, allowances.

A user signs in as a role of the database. Each request opens a connection of that role, so that row-level security
decides what the page shows; it is read-only except to grant or revoke training. No row is read.
"""
