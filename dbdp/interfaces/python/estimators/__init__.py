"""scikit-learn estimators: each fit releases one private model, of a registered dataset or of the caller's rows."""

from dbdp.interfaces.python.estimators.design import design_matrix
from dbdp.interfaces.python.estimators.linear import HuberRegressor, LinearSVC, LogisticRegression, Ridge
from dbdp.interfaces.python.estimators.networks import MLPClassifier
from dbdp.interfaces.python.estimators.odometer import PrivacySpendingWarning, SpendingLimit, spending

__all__ = [
    "HuberRegressor",
    "LinearSVC",
    "LogisticRegression",
    "MLPClassifier",
    "PrivacySpendingWarning",
    "Ridge",
    "SpendingLimit",
    "design_matrix",
    "spending",
]
