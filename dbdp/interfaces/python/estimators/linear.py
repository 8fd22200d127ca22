"""The linear models that a user knows, as classifiers and regressors of scikit-learn."""

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dbdp.interfaces.python import frames
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.declaring import extent
from dbdp.interfaces.python.estimators.base import Estimator, Scored
from dbdp.interfaces.python.estimators.inputs import GivenRows, StoredLabels
from dbdp.interfaces.python.keywords import OF_CLASSES, OF_NUMBERS, initialiser
from dbdp.registry.results import class_probabilities
from dbdp.registry.results.models import ReleasedModel

if TYPE_CHECKING:
    from dbdp.interfaces.python.keywords import OfClassifiers, OfRegressors


class Classifier(Scored, ClassifierMixin, Estimator):
    """The base class of the classifiers."""

    _explained, _of_label = OF_CLASSES, "classes"
    _classes: np.ndarray | None = None
    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[OfClassifiers]) -> None: ...
    else:
        __init__ = initialiser(__name__, _of_label)

    @property
    def classes_(self) -> np.ndarray:
        """The classes, shape (classes,), in the order of the decision values."""
        check_is_fitted(self, "declaration_")
        if self._classes is not None:
            return self._classes
        declared: tuple[Any, ...] = self.declaration_.classes or (False, True)
        return np.sort(declared)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the decision values of rows. For two classes, a value above 0 means the second.

        Parameters
        ----------
        X : array, pandas.DataFrame, Arrow table or sqlalchemy.Select
            Rows with the columns of the training data. An array has shape (n, columns).

        Returns
        -------
        array, shape (n,), or (n, classes) for more than two classes
            The decision values.

        Raises
        ------
        ValueError
            If the rows do not have these columns, or have missing values.
        NotFittedError
            If the estimator is not fitted.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class of each row.

        Parameters
        ----------
        X
            Rows, as `decision_function` takes them.

        Returns
        -------
        array, shape (n,)
            Values of `classes_`.

        Raises
        ------
        ValueError, NotFittedError
            As `decision_function` does.
        """
        scores = self._scores(X)
        places = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        predicted: np.ndarray = self.classes_[places]
        return predicted

    def _set_release(self, database: Database, model: ReleasedModel, rows: GivenRows | None) -> None:
        super()._set_release(database, model, rows)
        self._classes = rows.labels.classes if rows else None
        if rows is None and (declared := self.declaration_.classes):
            self._sort_outputs(np.argsort(declared))

    def _sort_outputs(self, order: np.ndarray) -> None:
        """Put the outputs of the model into the order of `classes_`."""
        self.coef_, self.intercept_ = self.coef_[order], self.intercept_[order]

    def _labels(self, y: np.ndarray, declared: tuple[Any, ...] | None) -> StoredLabels:
        check_classification_targets(y)
        known = self.classes if self.classes is not None else declared
        if known is None and y.dtype == bool:
            known = (False, True)
        classes = np.unique(y) if known is None else _sorted(known)
        if len(classes) < 2:
            raise ValueError(
                f"y has {len(classes)} class, and a classifier needs two or more; pass all classes as classes="
            )
        names = {value: frames.as_text(value) for value in classes.tolist()}
        stored = [names.get(value) for value in y.tolist()]
        if None in stored:
            value = y.tolist()[stored.index(None)]
            raise ValueError(f"y holds {value!r}, which is not one of the classes {classes.tolist()}; add it to them")
        texts = list(names.values())
        fields_of_label = {"negative": texts[0], "positive": texts[1]} if len(texts) == 2 else {"classes": texts}
        leaks = ["the classes of y"] if known is None else []
        return StoredLabels(np.array(stored, dtype=object), fields_of_label, classes, leaks)


class Probabilistic(Classifier):
    """The base class of the classifiers whose scores give probabilities."""

    @property
    def _is_softmax(self) -> bool:
        """Whether the classes were learned together; else each of several has a logistic probability of its own."""
        return class_probabilities.are_softmax(self.receipt_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class.

        For more than two classes these are the softmax of the scores if the algorithm learned it, as the default does.
        If each class was learned against the rest, their probabilities are scaled to add up to 1.

        Parameters
        ----------
        X
            Rows, as `decision_function` takes them.

        Returns
        -------
        array, shape (n, classes)
            The probabilities, in the order of `classes_`.

        Raises
        ------
        ValueError, NotFittedError
            As `decision_function` does.
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            positive = expit(scores)
            return np.column_stack([1.0 - positive, positive])
        # The softmax of the logarithms of logistic probabilities scales them, also if all of them round to 0.
        probabilities: np.ndarray = softmax(scores if self._is_softmax else -np.logaddexp(0.0, -scores), axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of the probability of each class.

        Parameters
        ----------
        X
            Rows, as `decision_function` takes them.

        Returns
        -------
        array, shape (n, classes)
            The logarithms, in the order of `classes_`.

        Raises
        ------
        ValueError, NotFittedError
            As `decision_function` does.
        """
        with np.errstate(divide="ignore"):  # a probability of 0, of a score of hundreds
            logarithms: np.ndarray = np.log(self.predict_proba(X))
        return logarithms


class LogisticRegression(Probabilistic):
    """Logistic regression."""

    loss = "logistic"


class LinearSVC(Classifier):
    """Linear support vector machine with the smoothed hinge loss."""

    loss = "huber_svm"


class _Regressor(Scored, RegressorMixin, Estimator):
    """A linear regression; the base class of the regressors."""

    _explained, _of_label = OF_NUMBERS, "label_bounds"
    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[OfRegressors]) -> None: ...
    else:
        __init__ = initialiser(__name__, _of_label)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the label of each row.

        Parameters
        ----------
        X : array, pandas.DataFrame, Arrow table or sqlalchemy.Select
            Rows with the columns of the training data. An array has shape (n, columns).

        Returns
        -------
        array, shape (n,)
            Numbers in the label's units.

        Raises
        ------
        ValueError
            If the rows do not have these columns, or have missing values.
        NotFittedError
            If the estimator is not fitted.
        """
        return self._scores(X)[:, 0]

    def _labels(self, y: np.ndarray, declared: tuple[Any, ...] | None) -> StoredLabels:
        try:
            numbers = y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"y has a value that is not a number, such as {_first_word(y)!r}; pass numbers, or use "
                "LogisticRegression or LinearSVC for classes"
            ) from None
        if not np.isfinite(numbers).all():
            raise ValueError("y contains NaN or infinity; leave those rows out")
        is_read = self.label_bounds is None
        try:
            lower, upper = map(float, extent(numbers) if is_read else self.label_bounds)
        except (TypeError, ValueError):
            raise ValueError(f"label_bounds = {self.label_bounds!r}; pass [lower, upper], two numbers") from None
        return StoredLabels(numbers, {"label_bounds": [lower, upper]}, None, ["bounds of y"] if is_read else [])


class HuberRegressor(_Regressor):
    """Linear regression with the Huber loss."""

    loss = "huber_regression"


class Ridge(_Regressor):
    """Linear regression with the squared loss, on a ball of public radius."""

    loss = "squared"


def _sorted(classes: Any) -> np.ndarray:
    """Return classes sorted, in the order of columns that scikit-learn's scorers expect."""
    if isinstance(classes, str) or np.ndim(classes) != 1:
        raise ValueError(f"classes = {classes!r}; pass a list, one entry for each class")
    values = np.asarray(classes)
    texts = list(map(frames.as_text, values.tolist()))
    if None in texts:
        raise ValueError(f"classes = {values.tolist()} hold a missing value; list the classes that y has")
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise ValueError(f"classes = {values.tolist()} hold {twice[0]!r} twice; list each once")
    try:
        return np.sort(values)
    except TypeError:
        raise ValueError(f"classes = {values.tolist()} are of several types; use the type of y for all") from None


def _first_word(values: np.ndarray) -> Any:
    """Return the first of some labels that is not a number."""
    for value in values.tolist():
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return values[0]
