"""Differentially private machine learning inside PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbdp.algorithms import Request as Request
    from dbdp.algorithms.combined.tuning import TuningRequest as TuningRequest
    from dbdp.interfaces.python.client.connecting import connect as connect
    from dbdp.interfaces.python.client.database import Database as Database
    from dbdp.interfaces.python.client.proposals import propose_declaration as propose_declaration
    from dbdp.interfaces.python.declaring import PrivacyLeakWarning as PrivacyLeakWarning
    from dbdp.interfaces.python.estimators.linear import HuberRegressor as HuberRegressor
    from dbdp.interfaces.python.estimators.linear import LinearSVC as LinearSVC
    from dbdp.interfaces.python.estimators.linear import LogisticRegression as LogisticRegression
    from dbdp.interfaces.python.estimators.linear import Ridge as Ridge
    from dbdp.interfaces.python.estimators.networks import MLPClassifier as MLPClassifier
    from dbdp.interfaces.python.estimators.odometer import PrivacySpendingWarning as PrivacySpendingWarning
    from dbdp.interfaces.python.estimators.odometer import SpendingLimit as SpendingLimit
    from dbdp.interfaces.python.estimators.odometer import spending as spending
    from dbdp.interfaces.python.estimators.stored_models import load as load
    from dbdp.sessions.errors import ChargedError as ChargedError

__version__ = "1.0.0"

_PLACES = {
    "ChargedError": "dbdp.sessions.errors",
    "Database": "dbdp.interfaces.python.client.database",
    "connect": "dbdp.interfaces.python.client.connecting",
    "propose_declaration": "dbdp.interfaces.python.client.proposals",
    "LogisticRegression": "dbdp.interfaces.python.estimators.linear",
    "LinearSVC": "dbdp.interfaces.python.estimators.linear",
    "MLPClassifier": "dbdp.interfaces.python.estimators.networks",
    "HuberRegressor": "dbdp.interfaces.python.estimators.linear",
    "Ridge": "dbdp.interfaces.python.estimators.linear",
    "load": "dbdp.interfaces.python.estimators.stored_models",
    "SpendingLimit": "dbdp.interfaces.python.estimators.odometer",
    "spending": "dbdp.interfaces.python.estimators.odometer",
    "PrivacySpendingWarning": "dbdp.interfaces.python.estimators.odometer",
    "PrivacyLeakWarning": "dbdp.interfaces.python.declaring",
    "Request": "dbdp.algorithms",
    "TuningRequest": "dbdp.algorithms.combined.tuning",
}
__all__ = list(_PLACES)

_RELATIVES = {
    **dict.fromkeys(("LinearRegression", "Lasso", "ElasticNet", "RidgeCV"), "Ridge"),
    **dict.fromkeys(("SVC", "LinearSVM", "SVM"), "LinearSVC"),
    **dict.fromkeys(("SVR", "LinearSVR", "SGDRegressor"), "HuberRegressor"),
    **dict.fromkeys(("LogisticRegressionCV", "SGDClassifier", "Perceptron"), "LogisticRegression"),
}


class _NoAttributeError(AttributeError):
    """A name that is not public; what to use in its place is looked for when the error is shown.

    For `from dbdp import checks` Python asks for such an attribute first, also in the server, which has no psycopg.
    """

    def __str__(self) -> str:
        (name,) = self.args
        return f"module 'dbdp' has no attribute {name!r}{_remedy(name)}"


def _remedy(name: str) -> str:
    if name in _RELATIVES:
        return f"; use dbdp.{_RELATIVES[name]}"
    if hasattr(import_module(_PLACES["Database"]).Database, name):
        return f"; it is a method, dbdp.connect().{name}(…)"
    nearest: str = import_module("dbdp.checks").nearest(name, _PLACES)
    return nearest


if not TYPE_CHECKING:  # a type checker would accept every name as a member

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, so that the server, which needs none, starts fast."""
        if name not in _PLACES:
            raise _NoAttributeError(name)
        with import_module("dbdp.optional").needing(f"dbdp.{name}", "sklearn"):
            return getattr(import_module(_PLACES[name]), name)

    def __dir__() -> list[str]:
        """List the public names, so that a shell completes them."""
        return sorted([*__all__, "__version__"])
