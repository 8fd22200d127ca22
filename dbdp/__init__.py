"""Differentially private machine learning inside PostgreSQL."""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_PLACES = {
    "Database": "dbdp.database",
    "connect": "dbdp.database",
    "propose_declaration": "dbdp.database",
    "LogisticRegression": "dbdp.estimators",
    "LinearSVC": "dbdp.estimators",
    "HuberRegressor": "dbdp.estimators",
    "Ridge": "dbdp.estimators",
    "PrivacyLeakWarning": "dbdp.declaring",
    "Request": "dbdp.algorithms",
    "TuningRequest": "dbdp.algorithms.tuning",
}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: the server needs none of them, and imports fast."""
    if name not in _PLACES:
        raise AttributeError(f"module 'dbdp' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
