"""The Python door, scikit-learn style: train on a registered dataset or on rows at hand, predict on rows at hand.

Shapes: X (n, columns) with one column for each declared column, or (n, length) for an array.
"""

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from dbdp.algorithms import Request
from dbdp.controller.options import keywords
from dbdp.interfaces.python import frames
from dbdp.interfaces.python.database import Database, connect
from dbdp.interfaces.python.declaring import Declared, PrivacyLeakWarning, extent, features_of
from dbdp.interfaces.python.frames import Frame
from dbdp.interfaces.python.progress import progress_bar
from dbdp.learning.rows.encoding import bins_of, positions
from dbdp.learning.rows.features import Numeric
from dbdp.registry.declarations import Declaration
from dbdp.registry.releases import decisions

if TYPE_CHECKING:
    from dbdp.interfaces.python.keywords import OfClassifiers, OfRegressors

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before scikit-learn 1.6

    def validate_data(
        estimator: Any, X: Any, y: Any = "no_validation", *, skip_check_array: bool = False, **given: Any
    ) -> Any:
        """Check rows, and note their columns, as later versions do."""
        return estimator._validate_data(X, y, cast_to_ndarray=not skip_check_array, **given)


_EXPLAINED = """

    Parameters
    ----------
    epsilon, delta : the stand-alone guarantee of each fit; delta = 0 asks for pure ε
    algorithm, epochs, batch_size : and all other options of a training, see `dbdp.Request`
    database : where registered datasets are, and what a SQLAlchemy query reads from: a `dbdp.Database`, a SQLAlchemy
        engine or connection, or a psycopg connection; None for that of `dbdp.connect()`. Pickles leave it out
    bounds : of rows at hand: column → [lower, upper], a mapping of these bounds with bins and scale, or
        ["category", …]; or one pair [lower, upper], of numbers or of
        arrays (columns,), for all columns; or a number, the norm of a row. Values outside are clipped
    {label}
    intercept : whether a model of rows at hand has one
    progress : show a progress bar on a terminal

    Attributes
    ----------
    coef_ : (1, features), or (classes, features); per unit of a column or for a category
    intercept_ : (1,) or (classes,)
    feature_names_ : a name for each coefficient
    n_features_in_, feature_names_in_ : how many columns X has, and their names, where they have names
    {attribute}receipt_ : what was done and what it cost
    model_id_ : number in dbdp.models

    Warns
    -----
    PrivacyLeakWarning
        `fit` read {public} from the rows, because they were not given. The guarantee is then void: who
        knows all rows but one may see that one in them, and a model's noise is measured by them. A dtype's categories
        count as given: name them by `pandas.CategoricalDtype`, since `astype("category")` reads them from the rows.

    Notes
    -----
    A row is one person's: register a table with `unit` where a person has several. Rows at hand are loaded into the
    private server of this virtual environment for the time of one fit; each fit has a guarantee of its own, and nobody
    adds them up. So a `GridSearchCV` spends ε for each candidate and fold, and what it selects by tells more:
    use `Database.tune`, which charges once. In a `Pipeline`, steps such as `StandardScaler` learn from the rows
    without privacy. Whether `fit` raises depends on the rows, so that its errors are for whoever holds them.

    There is no random_state: noise and shuffles come from the operating system's entropy, and never take a seed.
    """


@dataclass(frozen=True)
class Labels:
    """Labels of rows at hand: as they are stored, what is declared of them, and what of that was read from them."""

    stored: np.ndarray
    declared: dict[str, Any]
    classes: np.ndarray | None
    leaks: list[str]


@dataclass(frozen=True)
class _Rows:
    """Rows at hand."""

    frame: Frame
    labels: Labels
    features: Declared


_OF_CLASSES = {
    "label": "classes : of rows at hand: all there are; they are sorted, and of two the second is positive, of more\n"
    "        each has a model",
    "attribute": "classes_ : those, sorted; or [False, True], where True is a dataset's positive value, or its sorted\n"
    "        classes\n    ",
    "public": "bounds, categories or classes",
}
_OF_NUMBERS = {
    "label": "label_bounds : of rows at hand: [lower, upper] of y; values outside are clipped",
    "attribute": "",
    "public": "bounds or categories",
}


def is_sql(rows: Any) -> bool:
    """Whether rows are a SQLAlchemy table, mapped class or query."""
    return hasattr(rows, "__visit_name__") or hasattr(rows, "__table__")


def _initialiser(of_label: str) -> Callable[..., None]:
    """Return an __init__ with one keyword for each option, as scikit-learn wants it."""
    shown = keywords(lambda each, _: each.type, without=("loss", "network"))
    own = {"database": None, "bounds": None, of_label: None, "intercept": True, "progress": True}
    shown += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in own.items()]
    signature = inspect.Signature(shown)

    def __init__(self: Any, **given: Any) -> None:
        bound = signature.bind(**given)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([itself, *shown])  # type: ignore[attr-defined]
    return __init__


class _LinearModel(BaseEstimator, ABC):
    """A linear model with differential privacy."""

    loss: ClassVar[str]
    _columns: list[str] | None = None  # of the rows at hand that it was fitted on

    @property
    def request(self) -> Request:
        """The same parameters as every other door has them."""
        given = self.get_params(deep=False)
        return Request(
            loss=self.loss, **{each.name: given[each.name] for each in fields(Request) if each.name in given}
        )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train, and store the release in dbdp.models.

        Parameters
        ----------
        X : the name of a registered dataset, or its table as a SQLAlchemy `Table` or mapped class, trained in place
            and charged to its budget; or rows at hand: an array (n, columns), a pandas DataFrame, an Arrow table, or a
            SQLAlchemy `select()`, which is read with the rights of `database` and charged to no budget
        y : the labels of rows at hand (n,), or the name of their column. `fit(database, "name")` trains in place too

        Raises
        ------
        ValueError
            Before anything is spent: parameters, rows, dataset or budget do not allow it.
        ChargedError
            After the charge: the server failed, or the training was cancelled.
        """
        if isinstance(X, Database):
            return self._trained(X, y)
        if not isinstance(X, str) and not is_sql(X):
            return self._fit_rows(X, y)
        with self._opened() as database:
            name = X if isinstance(X, str) else self._dataset_of(database, X)
            if name is None:
                return self._fit_rows(self._read(database, X), y)
            if y is not None:
                raise ValueError(f"y is given, but dataset {name!r} has a declared label; leave y out")
            return self._trained(database, name)

    def charged_score(
        self, dataset: str, metric: str, *, epsilon: float, delta: float = 0.0, database: Database | None = None
    ) -> dict[str, Any]:
        """Return a figure of this model on a registered dataset, with noise, charged to its budget.

        `score` is exact instead, for rows at hand. See `Database.score`.

        Parameters
        ----------
        database : where model and dataset are, where that is not the estimator's own
        """
        check_is_fitted(self)
        if self._columns:
            raise ValueError(
                "this model was trained on rows at hand, and is in no database of datasets; score it on rows at hand "
                "by score(X, y), or fit it on a dataset"
            )
        if database is not None:
            return database.score(self.model_id_, dataset, metric, epsilon=epsilon, delta=delta)
        with self._opened() as opened:
            return opened.score(self.model_id_, dataset, metric, epsilon=epsilon, delta=delta)

    def __sklearn_clone__(self) -> Self:
        made: Self = BaseEstimator.__sklearn_clone__(copy(self))
        made.database = self.database
        return made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _more_tags(self) -> dict[str, Any]:  # before scikit-learn 1.6
        return {"non_deterministic": True}

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return state | {"database": None}

    @contextmanager
    def _opened(self) -> Iterator[Database]:
        """Give the database; close it if it was opened for that."""
        if isinstance(self.database, str):
            raise ValueError(
                "database is a URL, which would be shown, with its password, wherever the estimator is; give "
                "database=dbdp.connect(url)"
            )
        if isinstance(self.database, Database):
            yield self.database
        else:
            with connect(self.database) as database:
                yield database

    def _dataset_of(self, database: Database, X: Any) -> str | None:
        """Return the dataset that a table is registered as; None for a query."""
        from dbdp.interfaces.python import alchemy

        if alchemy.table_of(X) is None:
            return None
        name = database.dataset_of(X)
        if name is None:
            raise ValueError(
                f"table {alchemy.source_name(X)} is no dataset that this role may train on; register it, or give "
                "select(table) to read its rows by your own rights"
            )
        return name

    def _read(self, database: Database, X: Any) -> dict[str, list[Any]]:
        """Return what a query gives to train on; warn where its rows have a budget."""
        from dbdp.interfaces.python import alchemy

        found = database.rows(X)
        for name in filter(None, map(database.dataset_of, alchemy.tables_of(X))):
            warnings.warn(
                f"the query reads rows of dataset {name!r} by your own rights, and what is trained on them is not "
                f"charged to its budget: keep it to yourself, or train by fit({name!r})",
                PrivacyLeakWarning,
                stacklevel=3,
            )
        return found

    def _trained(self, database: Database, dataset: str, rows: _Rows | None = None) -> Self:
        """Train on a registered dataset, that of rows at hand or another; keep the release."""
        with progress_bar(enabled=self.progress) as report:
            model = database.train(dataset, self.request, report)
        found = database.query("select declaration::text as d from dbdp.model where id = $1", model.id)
        self.declaration_ = Declaration.from_json(found[0]["d"])
        self.coef_ = np.atleast_2d(np.array(model.coefficients))
        self.intercept_ = np.array(model.intercepts)
        self.feature_names_ = model.feature_names
        self.receipt_ = model.receipt
        self.model_id_ = model.id
        self._columns = list(rows.frame) if rows else None
        if rows is None:
            self._note_columns(self.declaration_)
        return self

    def _note_columns(self, declaration: Declaration) -> None:
        """Note the columns of a dataset, as scikit-learn does those of rows."""
        if declaration.vector:
            self.n_features_in_ = declaration.vector.length
            self.__dict__.pop("feature_names_in_", None)
        else:
            self.n_features_in_ = len(declaration.columns)
            self.feature_names_in_ = np.array(declaration.columns, dtype=object)

    def _fit_rows(self, X: Any, y: Any) -> Self:
        """Train on rows at hand, in the private server."""
        from dbdp.interfaces.python.loading import temporary_dataset

        rows = self._checked(X, y)
        if leaks := rows.labels.leaks + rows.features.leaks:
            told = ", ".join(leaks[:5]) + (", …" if len(leaks) > 5 else "")
            warnings.warn(
                f"read from the rows, which voids the guarantee: {told}; give what is known of them without looking",
                PrivacyLeakWarning,
                stacklevel=3,
            )
        declared = {"intercept": self.intercept, **rows.labels.declared}
        loaded = temporary_dataset(rows.frame, rows.labels.stored, rows.features.features, self.request, **declared)
        with loaded as (database, dataset):
            return self._trained(database, dataset, rows)

    def _checked(self, X: Any, y: Any) -> _Rows:
        """Return rows and labels that can be trained on."""
        if isinstance(y, str):
            X, y = frames.without(X, y)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; give the labels of the rows"
            )
        stated, y = frames.categories_of(y), frames.labels_of(y)
        if frames.is_frame(X):
            frame, y = self._checked_frame(X), column_or_1d(y, warn=True)
            check_consistent_length(next(iter(frame.values())).values, y)
        else:
            X, y = validate_data(self, X, y, dtype=np.float64)
            frame = frames.of_array(X, [f"x{place}" for place in range(X.shape[1])])
        features = features_of(frame, self.bounds)
        return _Rows(frame, self._labels(y, stated), features)

    def _checked_frame(self, X: Any) -> Frame:
        frame = frames.whole(frames.frame_of(X))
        if not frame or not len(next(iter(frame.values())).values):
            raise ValueError("X has no rows or no columns; give at least one of each")
        if frames.is_pandas(X):
            validate_data(self, X, skip_check_array=True)
        else:
            self.n_features_in_, self.feature_names_in_ = len(frame), np.array(list(frame), dtype=object)
        return frame

    @abstractmethod
    def _labels(self, y: np.ndarray, stated: tuple[Any, ...] | None) -> Labels:
        """Return labels as they are stored, with what is declared of them.

        Parameters
        ----------
        stated : classes that the labels' type declares
        """

    def _scores(self, X: Any) -> np.ndarray:
        """Return the decision values of rows, shape (n, outputs)."""
        check_is_fitted(self)
        if isinstance(X, str):
            raise ValueError(
                f"X = {X!r} is a name, not rows; predict and score are for rows at hand, charged_score for a dataset"
            )
        if is_sql(X):
            with self._opened() as database:
                X = database.rows(X)
        rows = frames.whole_array(_shaped(self.declaration_, self._placed(X)), self._names)
        return decisions(self.declaration_, design_matrix(self.declaration_, rows), self.coef_, self.intercept_)

    @property
    def _names(self) -> list[str]:
        """The names of the columns, or of an array's numbers, in the order of the declaration."""
        if not self.declaration_.vector:
            return self.declaration_.columns
        return self._columns or self.declaration_.feature_names

    def _placed(self, X: Any) -> Any:
        """Return rows as an array, with the columns in the order of the declaration."""
        declaration, fitted = self.declaration_, self._columns
        if frames.is_frame(X):
            if fitted and frames.is_pandas(X):
                validate_data(self, X, reset=False, skip_check_array=True)
            if declaration.vector and not fitted:
                return frames.arrays_of(X, declaration.vector.column)
            return frames.placed(X, self._names)
        if not fitted:
            return X
        checked = validate_data(self, X, reset=False, dtype=object if declaration.categorical else np.float64)
        return checked[:, [fitted.index(name) for name in self._names]]


class _Classifier(ClassifierMixin, _LinearModel):
    """What the classifiers share: a class for each row."""

    _classes: np.ndarray | None = None
    if TYPE_CHECKING:

        def __init__(self, **given: Unpack[OfClassifiers]) -> None: ...
    else:
        __init__ = _initialiser("classes")

    @property
    def classes_(self) -> np.ndarray:
        """The classes, in the order of the decision values."""
        check_is_fitted(self, "coef_")
        if self._classes is not None:
            return self._classes
        declared: tuple[Any, ...] = self.declaration_.classes or (False, True)
        return np.sort(declared)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the decision values of rows, shape (n,); above 0 is positive. (n, classes) for classes."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row, shape (n,): whether it is taken for a positive one, or a class."""
        scores = self._scores(X)
        places = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        predicted: np.ndarray = self.classes_[places]
        return predicted

    def _trained(self, database: Database, dataset: str, rows: _Rows | None = None) -> Self:
        super()._trained(database, dataset, rows)
        self._classes = rows.labels.classes if rows else None
        if rows is None and (declared := self.declaration_.classes):
            order = np.argsort(declared)
            self.coef_, self.intercept_ = self.coef_[order], self.intercept_[order]
        return self

    def _labels(self, y: np.ndarray, stated: tuple[Any, ...] | None) -> Labels:
        check_classification_targets(y)
        known = self.classes if self.classes is not None else stated
        if known is None and y.dtype == bool:
            known = (False, True)
        classes = np.unique(y) if known is None else _sorted(known)
        if len(classes) < 2:
            raise ValueError(
                f"y has {len(classes)} class; a classifier needs two or more: give classes=, all there are"
            )
        names = {value: frames.as_text(value) for value in classes.tolist()}
        found = [names.get(value) for value in y.tolist()]
        if None in found:
            value = y.tolist()[found.index(None)]
            raise ValueError(f"y holds {value!r}, which is none of the classes {classes.tolist()}")
        texts = list(names.values())
        declared = {"negative": texts[0], "positive": texts[1]} if len(texts) == 2 else {"classes": texts}
        return Labels(np.array(found, dtype=object), declared, classes, ["the classes of y"] if known is None else [])


class LogisticRegression(_Classifier):
    __doc__ = "Logistic regression." + _EXPLAINED.format(**_OF_CLASSES)
    loss = "logistic"

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes, shape (n, classes); those of one against the rest add up to 1."""
        positive = 1.0 / (1.0 + np.exp(-np.clip(self._scores(X), -700, 700)))
        if positive.shape[1] == 1:
            return np.column_stack([1.0 - positive, positive])
        shares: np.ndarray = positive / positive.sum(axis=1, keepdims=True)
        return shares


class LinearSVC(_Classifier):
    __doc__ = "A support vector machine with the smoothed hinge loss." + _EXPLAINED.format(**_OF_CLASSES)
    loss = "huber_svm"


class _Regressor(RegressorMixin, _LinearModel):
    """What the regressions share: a number for each row."""

    if TYPE_CHECKING:

        def __init__(self, **given: Unpack[OfRegressors]) -> None: ...
    else:
        __init__ = _initialiser("label_bounds")

    def predict(self, X: Any) -> np.ndarray:
        """Return the number of each row, shape (n,), in the label's units."""
        return self._scores(X)[:, 0]

    def _labels(self, y: np.ndarray, stated: tuple[Any, ...] | None) -> Labels:
        numbers = y.astype(np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError("y contains NaN or infinity; leave those rows out")
        given = self.label_bounds is not None
        try:
            lower, upper = map(float, self.label_bounds if given else extent(numbers))
        except (TypeError, ValueError):
            raise ValueError(f"label_bounds = {self.label_bounds!r}; give [lower, upper], two numbers") from None
        declared = {"label_bounds": [lower, upper]}
        return Labels(numbers, declared, None, [] if given else ["bounds of y"])


class HuberRegressor(_Regressor):
    __doc__ = "Linear regression with the Huber loss." + _EXPLAINED.format(**_OF_NUMBERS)
    loss = "huber_regression"


class Ridge(_Regressor):
    __doc__ = "Linear regression with the squared loss, on a ball of public radius." + _EXPLAINED.format(**_OF_NUMBERS)
    loss = "squared"


def _sorted(classes: Any) -> np.ndarray:
    """Return stated classes in scikit-learn's order, in which its scorers take the columns of probabilities.

    Raises
    ------
    ValueError
        If they are no list, one is missing, or two are stored as one text.
    """
    if isinstance(classes, str) or np.ndim(classes) != 1:
        raise ValueError(f"classes = {classes!r}; give a list, one entry for each class")
    found = np.asarray(classes)
    texts = list(map(frames.as_text, found.tolist()))
    if None in texts:
        raise ValueError(f"classes = {found.tolist()} hold a missing value; list the classes that y has")
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise ValueError(f"classes = {found.tolist()} hold {twice[0]!r} twice; list each once")
    try:
        return np.sort(found)
    except TypeError:
        raise ValueError(f"classes = {found.tolist()} are of several types; give all of one, as y has them") from None


def design_matrix(declaration: Declaration, X: Any) -> np.ndarray:
    """Return rows as the coefficients want them: numbers within their bounds, on their scale or as bins; indicators.

    Parameters
    ----------
    X : (n, columns), in the order of `declaration.columns`; (n, length) for an array column
    """
    rows = _shaped(declaration, X)
    if declaration.vector:
        return rows
    numbers = [
        coordinates
        for place, feature in enumerate(declaration.numeric)
        for coordinates in _numbers(feature, rows[:, place].astype(np.float64))
    ]
    indicators = [
        texts == category
        for place, feature in enumerate(declaration.categorical, len(declaration.numeric))
        for texts in [_texts(rows[:, place], is_boolean=set(feature.categories) <= {"true", "false"})]
        for category in feature.categories
    ]
    return np.column_stack([*numbers, *indicators]).astype(np.float64)


def _numbers(feature: Numeric, values: np.ndarray) -> list[np.ndarray]:
    """Return the coordinates of a numeric column; NaN stays, in every bin."""
    if not feature.bins:
        return [positions(feature, values)]
    places, missing = bins_of(feature, values), np.where(np.isnan(values), np.nan, 0.0)
    return [(places == place) + missing for place in range(feature.bins)]


def _texts(values: np.ndarray, *, is_boolean: bool) -> np.ndarray:
    """Return the values of a column as categories are written; of a boolean one 0 and 1 are taken too."""

    def text(value: Any) -> str | None:
        as_bool = is_boolean and not isinstance(value, str) and value in (0, 1)
        return frames.as_text(bool(value) if as_bool else value)

    return np.array([text(value) for value in values], dtype=object)


def _shaped(declaration: Declaration, X: Any) -> np.ndarray:
    """Return rows as an array (n, columns) of float64 or, with categories, of objects."""
    rows = np.asarray(X, dtype=object if declaration.categorical else np.float64)
    expected = declaration.vector.length if declaration.vector else len(declaration.columns)
    if rows.ndim != 2 or rows.shape[1] != expected:
        raise ValueError(f"X has shape {rows.shape}; it must be (n, {expected}): {', '.join(declaration.columns)}")
    return rows
