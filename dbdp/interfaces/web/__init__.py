"""A page for the data owner, on this machine's own address: datasets, budgets, ledger, models, plans, allowances.

Whoever signs in does so as a role of the database. Each request is a connection of that role, so that row-level
security decides what is seen; it is read-only but where training is granted or revoked. No row is read.
"""
