"""Read-only SQLAlchemy models of registry and ledger; the public name of `dbdp.interfaces.python.models`."""

from dbdp.interfaces.python.models import Allowance, Base, Charge, Dataset, Model, Statistics, Summary

__all__ = ["Allowance", "Base", "Charge", "Dataset", "Model", "Statistics", "Summary"]
