"""The registry: datasets, budgets, the ledger, rights and released models, as the database stores them."""
