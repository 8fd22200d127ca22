"""Differentially private machine learning inside PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbdp.algorithms import Request as Request
    from dbdp.algorithms.tuning import TuningRequest as TuningRequest
    from dbdp.database import Database as Database
    from dbdp.database import connect as connect
    from dbdp.database import propose_declaration as propose_declaration
    from dbdp.declaring import PrivacyLeakWarning as PrivacyLeakWarning
    from dbdp.estimators import HuberRegressor as HuberRegressor
    from dbdp.estimators import LinearSVC as LinearSVC
    from dbdp.estimators import LogisticRegression as LogisticRegression
    from dbdp.estimators import Ridge as Ridge

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

if not TYPE_CHECKING:  # a type checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        """Load a public name when it is first used: the server needs none of them, and imports fast."""
        if name not in _PLACES:
            raise AttributeError(f"module 'dbdp' has no attribute {name!r}")
        return getattr(import_module(_PLACES[name]), name)
