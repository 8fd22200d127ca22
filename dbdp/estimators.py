"""The Python door, scikit-learn style: train on a registered dataset, predict on arrays.

Shapes: X (n, columns) with one column for each declared column, or (n, length) for an array.
"""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dbdp.algorithms import Request
from dbdp.database import Database
from dbdp.declarations import Declaration
from dbdp.options import keywords
from dbdp.progress import progress_bar


def _initialiser() -> Callable[..., None]:
    """Return an __init__ with one keyword for each option of a request, as scikit-learn wants it."""
    shown = keywords(lambda each, _: each.type, without=("loss", "network"))
    shown.append(inspect.Parameter("progress", inspect.Parameter.KEYWORD_ONLY, annotation=bool, default=True))
    signature = inspect.Signature(shown)

    def __init__(self: Any, **given: Any) -> None:
        bound = signature.bind(**given)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([own, *shown])  # type: ignore[attr-defined]
    return __init__


class _LinearModel(BaseEstimator):
    """A linear model with differential privacy, trained on a registered dataset.

    Parameters
    ----------
    epsilon, delta : the stand-alone guarantee of each fit; delta = 0 asks for pure ε
    algorithm, epochs, batch_size, … : see `dbdp.Request`
    progress : show a progress bar on a terminal

    Attributes
    ----------
    coef_ : (1, features), or (classes, features); per unit of a column or for a category
    intercept_ : (1,) or (classes,)
    feature_names_ : a name for each coefficient
    classes_ : [False, True], where True is the declared positive value; or the declared classes
    receipt_ : what was done and what it cost
    model_id_ : number in dbdp.models
    """

    loss: ClassVar[str]
    __init__ = _initialiser()

    @property
    def request(self) -> Request:
        """The same parameters as every other door has them."""
        given = {name: value for name, value in self.get_params().items() if name != "progress"}
        return Request(loss=self.loss, **given)

    def fit(self, database: Database, dataset: str) -> Self:
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
        self.coef_ = np.atleast_2d(np.array(model.coefficients))
        self.intercept_ = np.array(model.intercepts)
        self.feature_names_ = model.feature_names
        self.receipt_ = model.receipt
        self.model_id_ = model.id
        return self

    def _scores(self, X: Any) -> np.ndarray:
        """Return the decision values of rows, shape (n, outputs)."""
        check_is_fitted(self)
        return design_matrix(self.declaration_, X) @ self.coef_.T + self.intercept_


class _Classifier(ClassifierMixin, _LinearModel):
    """What the classifiers share: a class for each row."""

    @property
    def classes_(self) -> np.ndarray:
        """The classes, in the order of the decision values."""
        check_is_fitted(self, "coef_")
        return np.array(self.declaration_.classes or [False, True])

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the decision values of rows, shape (n,); above 0 is positive. (n, classes) for classes."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row, shape (n,): whether it is taken for a positive one, or a class."""
        scores = self._scores(X)
        return scores[:, 0] > 0 if scores.shape[1] == 1 else self.classes_[scores.argmax(axis=1)]


class LogisticRegression(_Classifier):
    __doc__ = "Logistic regression. " + (_LinearModel.__doc__ or "")
    loss = "logistic"

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes, shape (n, classes); those of one against the rest add up to 1."""
        positive = 1.0 / (1.0 + np.exp(-np.clip(self._scores(X), -700, 700)))
        if positive.shape[1] == 1:
            return np.column_stack([1.0 - positive, positive])
        return positive / positive.sum(axis=1, keepdims=True)


class HuberSVM(_Classifier):
    __doc__ = "A support vector machine with the smoothed hinge loss. " + (_LinearModel.__doc__ or "")
    loss = "huber_svm"


class _Regressor(RegressorMixin, _LinearModel):
    """What the regressions share: a number for each row."""

    def predict(self, X: Any) -> np.ndarray:
        """Return the number of each row, shape (n,), in the label's units."""
        return self._scores(X)[:, 0]


class HuberRegression(_Regressor):
    __doc__ = "Linear regression with the Huber loss. " + (_LinearModel.__doc__ or "")
    loss = "huber_regression"


class LinearRegression(_Regressor):
    __doc__ = "Linear regression with the squared loss, on a ball of public radius. " + (_LinearModel.__doc__ or "")
    loss = "squared"


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
