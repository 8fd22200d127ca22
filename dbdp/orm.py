"""SQLAlchemy models of registry and ledger: a public name of `dbdp.interfaces.python.models`."""

from dbdp.interfaces.python.models import Allowance, Base, Charge, Dataset, Model

__all__ = ["Allowance", "Base", "Charge", "Dataset", "Model"]
