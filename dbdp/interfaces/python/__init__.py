"""The Python interface: a database, estimators, rows at hand."""
