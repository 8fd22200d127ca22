"""SQLAlchemy models of registry and ledger: a public name of `dbdp.interfaces.python.models`."""

__all__ = []
