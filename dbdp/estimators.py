"""The Python door, scikit-learn style: train on a registered dataset, predict on arrays.

Shapes: X (n, columns) with one column for each declared column, or (n, length) for an array.
"""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dbdp.algorithms import Request
from dbdp.database import Database
from dbdp.datasets import Declaration
from dbdp.progress import progress_bar


class LogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression with differential privacy (Bolt-on, Wu et al. 2017).

    Parameters
    ----------
    epsilon, delta : the stand-alone guarantee of each fit; delta = 0 asks for pure ε
    epochs, batch_size, schedule, step_size, regularisation, mechanism, algorithm : see `Request`
    progress : show a progress bar on a terminal

    Attributes
    ----------
    coef_ : (1, features), per unit of a column or for a category; see `feature_names_`
    intercept_ : (1,)
    classes_ : [False, True]; True is the declared positive value
    receipt_ : what was done and what it cost
    model_id_ : number in dbdp.models
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float = 0.0,
        epochs: int = 10,
        batch_size: int = 50,
        schedule: str = "inverse_time",
        step_size: float | None = None,
        regularisation: float | None = None,
        mechanism: str | None = None,
        algorithm: str = "bolt_on",
        progress: bool = True,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.epochs = epochs
        self.batch_size = batch_size
        self.schedule = schedule
        self.step_size = step_size
        self.regularisation = regularisation
        self.mechanism = mechanism
        self.algorithm = algorithm
        self.progress = progress

    @property
    def request(self) -> Request:
        """The same parameters as every other door has them."""
        given = {name: value for name, value in self.get_params().items() if name != "progress"}
        return Request(loss="logistic", **given)

    def fit(self, database: Database, dataset: str) -> "LogisticRegression":
        """Train on a registered dataset and spend its budget; the release is stored in dbdp.models.

        Raises
        ------
        ValueError
            Before anything is spent: parameters, dataset or budget do not allow it.
        ChargedError
            After the charge: the server failed, or the training was cancelled.
        """
        with progress_bar(enabled=self.progress) as report:
            model = database.train(dataset, self.request, report)
        found = database.query(
            "select declaration::text as d from dbdp.dataset where name = $1 and dropped_at is null", dataset
        )
        self.declaration_ = Declaration.from_json(found[0]["d"])
        self.coef_ = np.array([model.coefficients])
        self.intercept_ = np.array([model.intercept])
        self.feature_names_ = model.feature_names
        self.receipt_ = model.receipt
        self.model_id_ = model.id
        self.classes_ = np.array([False, True])
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the decision values of rows, shape (n,); above 0 is positive."""
        check_is_fitted(self)
        return design_matrix(self.declaration_, X) @ self.coef_[0] + self.intercept_[0]

    def predict(self, X: Any) -> np.ndarray:
        """Return whether each row is taken for a positive one, shape (n,)."""
        return self.decision_function(X) > 0

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of both classes, shape (n, 2)."""
        positive = 1.0 / (1.0 + np.exp(-np.clip(self.decision_function(X), -700, 700)))
        return np.column_stack([1.0 - positive, positive])


def design_matrix(declaration: Declaration, X: Any) -> np.ndarray:
    """Return rows as the coefficients want them: numbers within their bounds, then indicators.

    Parameters
    ----------
    X : (n, columns), in the order of `declaration.columns`; (n, length) for an array column
    """
    rows = np.asarray(X, dtype=np.float64 if declaration.vector else object)
    expected = declaration.vector.length if declaration.vector else len(declaration.columns)
    if rows.ndim != 2 or rows.shape[1] != expected:
        raise ValueError(f"X has shape {rows.shape}; it must be (n, {expected}): {', '.join(declaration.columns)}")
    if declaration.vector:
        return rows
    count = len(declaration.numeric)
    lower = [feature.lower for feature in declaration.numeric]
    upper = [feature.upper for feature in declaration.numeric]
    numbers = np.clip(rows[:, :count].astype(np.float64), lower, upper)
    values = (
        np.vectorize(_as_category, otypes=[object])(rows[:, count:]) if declaration.categorical else rows[:, count:]
    )
    indicators = [
        values[:, column] == category
        for column, feature in enumerate(declaration.categorical)
        for category in feature.categories
    ]
    return np.column_stack([numbers, *indicators]).astype(np.float64)


def _as_category(value: Any) -> str:
    """Return a value as PostgreSQL writes it as text."""
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)
