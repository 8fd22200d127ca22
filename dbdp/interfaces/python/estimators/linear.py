"""scikit-learn estimators: train on a registered dataset or on the caller's rows, predict on the caller's rows.

Shapes: X (n, columns) with one column for each declared column, or (n, length) for an array.
"""

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from dbdp import checks
from dbdp.algorithms import Request
from dbdp.controller.options import keywords
from dbdp.interfaces.python import frames
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.declaring import Declared, PrivacyLeakWarning, extent, features_of, misfits
from dbdp.interfaces.python.estimators import odometer
from dbdp.interfaces.python.frames import Column, Frame, is_spark
from dbdp.interfaces.python.progress import progress_bar
from dbdp.learning.rows.encoding import bins_of, cells_of, groups_of, positions, sides
from dbdp.learning.rows.features import Numeric
from dbdp.learning.rows.pairs import Side
from dbdp.registry.declarations import Declaration
from dbdp.registry.results.column_units import decisions
from dbdp.registry.results.models import Model

if TYPE_CHECKING:
    from dbdp.interfaces.python.keywords import OfClassifiers, OfRegressors

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before scikit-learn 1.6

    def validate_data(
        estimator: Any, X: Any, y: Any = "no_validation", *, skip_check_array: bool = False, **options: Any
    ) -> Any:
        """Check rows and record their columns, as later versions do."""
        return estimator._validate_data(X, y, cast_to_ndarray=not skip_check_array, **options)


_EXPLAINED = """

    Parameters
    ----------
    epsilon : float
        ε of the stand-alone guarantee of each fit.
    delta : float
        δ of that guarantee. 0 is pure ε-differential privacy.
    algorithm : str
        Name of the algorithm. All other keywords of `dbdp.Request` except `loss` and `network` are accepted too.
    database : Database, sqlalchemy.Engine, sqlalchemy.Connection or psycopg.Connection, optional
        The database of registered datasets and SQLAlchemy queries (default: that of `dbdp.connect()`). It is not
        pickled.
    bounds : mapping, pair or float, optional
        For rows passed to `fit`: column → [lower, upper], {{"bounds": [lower, upper], "bins": 8, "scale": "asinh"}} or
        ["category", …]. Or one pair [lower, upper], of numbers or of arrays (columns,), for all columns. Or a number,
        the norm of a row. Values outside are clipped.
    {label}
    intercept : bool
        Whether a model of rows passed to `fit` has an intercept.
    progress : bool
        Whether to show a progress bar on a terminal.

    Attributes
    ----------
    {model}
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of str
        Their names, if they have names.
    {attribute}receipt_ : dict
        The plan and its cost.
    model_id_ : int
        Number of the model in dbdp.models.

    Warns
    -----
    UserWarning
        If noise is expected to dominate, or delta is at least 1/n: the `warning` of the receipt. If at least half the
        values of a column, or of the labels, are not as declared: a misspelt category, bounds in another unit.
    PrivacySpendingWarning
        If fits on rows with the same columns add up: at the second, the fourth, the eighth, ….
    PrivacyLeakWarning
        If `fit` reads {public} from the rows, because you passed none. The guarantee is then void:
        anyone who knows all rows but one may infer that row from them, and they set the scale of the noise. The
        categories of a dtype count as passed: state them by `pandas.CategoricalDtype`, since `astype("category")`
        reads them from the rows.

    Notes
    -----
    A row is one person's: if a person has several, register a table with `unit`. Rows that you pass to `fit` are loaded
    into the private server of this virtual environment for one fit. Each fit has its own guarantee, and they add up: a
    `GridSearchCV` spends ε for each candidate and fold, and its choice leaks more. `dbdp.spending` returns the sum and
    `dbdp.SpendingLimit` limits it. `Database.tune` chooses for one charge. In a `Pipeline`, steps such as
    `StandardScaler` learn from the rows without privacy. Whether `fit` raises depends on the rows, so show its
    errors only to people who may see the rows.

    There is no random_state: noise and shuffles come from the operating system's entropy, without a seed.
    """


@dataclass(frozen=True)
class Labels:
    """Labels of a caller's rows, ready to be stored.

    Attributes
    ----------
    stored : array, shape (n,)
        float64 or texts.
    declared : dict
        Fields of a registration: positive and negative, classes, or label_bounds.
    classes : array, shape (classes,), or None
        The classes in the caller's own type; None for numbers.
    leaks : list of str
        Names of what was read from the labels.
    """

    stored: np.ndarray
    declared: dict[str, Any]
    classes: np.ndarray | None
    leaks: list[str]


@dataclass(frozen=True)
class _Rows:
    """A caller's rows, ready to be loaded."""

    frame: Frame
    labels: Labels
    features: Declared
    are_extremes: bool = False  # the frame has what was read of the rows, and not their values

    @property
    def misfits(self) -> list[str]:
        """A sentence for each column, and for the labels, of which most values are not as declared."""
        if self.are_extremes:
            return []
        bounds = self.labels.declared.get("label_bounds")
        labels = {"y": Column(self.labels.stored)} if bounds else {}
        return misfits(self.frame, self.features.features) + misfits(labels, {"y": bounds})


Load = Callable[..., AbstractContextManager[tuple[Database, str]]]  # of features, a request and declared facts

OF_LINEAR_MODELS = (
    "coef_ : array, shape (1, features) or (classes, features)\n"
    "        Coefficients per unit of a column or for a category.\n"
    "    intercept_ : array, shape (1,) or (classes,)\n"
    "        Intercepts.\n"
    "    feature_names_ : list of str\n"
    "        A name for each coefficient."
)
OF_CLASSES = {
    "model": OF_LINEAR_MODELS,
    "label": "classes : sequence, optional\n"
    "        For labels passed to `fit`: all classes, which are sorted. Of two the second is positive. Of more each\n"
    "        has a model.",
    "attribute": "classes_ : array, shape (classes,)\n"
    "        The classes, sorted. For a dataset with a binary label [False, True], with True for the positive value.\n"
    "    ",
    "public": "bounds, categories or classes",
}
_OF_NUMBERS = {
    "model": OF_LINEAR_MODELS,
    "label": "label_bounds : sequence of float, optional\n"
    "        For labels passed to `fit`: [lower, upper]. Values outside are clipped.",
    "attribute": "",
    "public": "bounds or categories",
}


def _check_are_rows(X: Any) -> None:
    """Raise ValueError for the name of a dataset, which is neither predicted nor scored exactly."""
    if isinstance(X, str):
        raise ValueError(
            f"X = {X!r} is a name, not rows; predict and score are for rows, charged_score for a dataset: "
            f"charged_score({X!r}, METRIC, epsilon=…)"
        )


def is_sql(rows: Any) -> bool:
    """Return whether rows are a SQLAlchemy table, mapped class or query."""
    return hasattr(rows, "__visit_name__") or hasattr(rows, "__table__")


def initialiser(module: str, of_label: str, *, without: tuple[str, ...] = (), **further: Any) -> Callable[..., None]:
    """Return an __init__ with one keyword for each option of a training, as scikit-learn requires.

    Parameters
    ----------
    module : str
        The module of the estimator, where documentation looks for it.
    of_label : str
        The keyword of the public facts of the label.
    without : tuple of str
        Options that the estimator does not have, besides loss and network.
    **further
        Keywords of the estimator's own, with their defaults.
    """
    shown = keywords(lambda each, _: each.type, without=("loss", "network", *without))
    own = {"database": None, "bounds": None, of_label: None, "intercept": True, "progress": True} | further
    shown += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in own.items()]
    signature = inspect.Signature(shown)

    def __init__(self: Any, *values: Any, **options: Any) -> None:
        owner = type(self).__name__
        if values:
            raise TypeError(f"{owner} takes keyword arguments only; write {owner}(epsilon=1)")
        named = checks.keywords(owner, options, signature.parameters, self._synonyms)
        if "epsilon" not in named:
            raise TypeError(f"epsilon is required, e.g. {owner}(epsilon=1) (smaller is more private)")
        bound = signature.bind(**named)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([itself, *shown])  # type: ignore[attr-defined]
    __init__.__module__ = module
    return __init__


class _Estimator(BaseEstimator, ABC):
    """A model with differential privacy; the base class of the estimators."""

    loss: ClassVar[str]
    _of_label: ClassVar[str]  # the keyword of the public facts of the label
    _explained: ClassVar[dict[str, str]]  # what the docstrings of classifiers and of regressors have of their own
    _synonyms: ClassVar[Mapping[str, str]] = checks.SYNONYMS  # other names of the parameters
    _columns: list[str] | None = None  # of the rows that were passed to fit; None for a dataset
    _limited_in: int | None = None  # the process in which a SpendingLimit was in force when this was pickled

    def __init_subclass__(cls, **options: Any) -> None:
        """Append the parameters and attributes, which estimators share, to the docstring of an estimator."""
        super().__init_subclass__(**options)
        if "loss" in vars(cls):
            cls.__doc__ = f"{cls.__doc__}{_EXPLAINED.format(**cls._explained)}"

    @property
    def request(self) -> Request:
        """The parameters as a `dbdp.Request`, which every interface uses."""
        parameters = self.get_params(deep=False)
        return Request(
            loss=self.loss, **{each.name: parameters[each.name] for each in fields(Request) if each.name in parameters}
        )

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name. As in the constructor, a keyword of scikit-learn is refused with the matching one.

        Parameters
        ----------
        **params
            The parameters.

        Returns
        -------
        self
            The estimator.

        Raises
        ------
        TypeError
            If there is no such parameter.
        """
        known = self.get_params(deep=False)
        named = checks.keywords(type(self).__name__, params, known, self._synonyms)
        changed: Self = super().set_params(**named)
        return changed

    def fit(self, X: Any, y: Any = None, **words: Any) -> Self:
        """Train a private model and store the release in dbdp.models.

        Parameters
        ----------
        X : str, sqlalchemy.Table, mapped class, array, pandas or Spark DataFrame, Arrow table or sqlalchemy.Select
            The name or the table of a registered dataset, which is trained in place and charged to its budget. Or
            rows, an array having shape (n, columns). A `select()` is run with the privileges of `database`, and
            charged to no budget. A DataFrame of Spark is trained on there, with the name of a column as y: see
            docs/scale.md.
        y : array, shape (n,), or str, optional
            The labels of the rows, or the name of their column. `fit(database, "name")` trains in place too.
        **words
            Keywords of scikit-learn, such as `sample_weight`, are refused with the remedy.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        TypeError
            If there are further keywords.
        ValueError
            If parameters, rows, dataset or budget do not allow it, before any charge.
        ChargedError
            If the server fails or the training run is cancelled after the charge.
        """
        checks.keywords(f"{type(self).__name__}.fit", words, ())
        self._fit(X, y)
        if warning := self.receipt_.get("warning"):  # from public facts
            warnings.warn(warning, UserWarning, stacklevel=2)
        return self

    def _fit(self, X: Any, y: Any) -> Self:
        """Train on a dataset or on rows, whichever is passed."""
        if isinstance(X, Database):
            return self._trained(X, y)
        if not isinstance(X, str) and not is_sql(X):
            return self._fit_rows(X, y)
        self._check_is_no_file(X)
        with self._opened() as database:
            name = X if isinstance(X, str) else self._dataset_of(database, X)
            if name is None:
                return self._fit_rows(self._read(database, X), y)
            if y is not None:
                raise ValueError(f"y is passed, but dataset {name!r} has a declared label; leave y out")
            self._warn_of_facts(name)
            return self._trained(database, name)

    def _warn_of_facts(self, dataset: str) -> None:
        """Warn if public facts were passed for rows, which a dataset has declared for itself."""
        passed = [name for name in ("bounds", self._of_label) if getattr(self, name) is not None]
        if passed:
            warnings.warn(
                f"{' and '.join(passed)} describe rows that are passed to fit, and are not used: dataset {dataset!r} "
                "has a declaration of its own",
                UserWarning,
                stacklevel=4,
            )

    def _check_is_no_file(self, X: Any) -> None:
        """Raise ValueError for the name of a file in place of a dataset's."""
        if isinstance(X, str) and X.lower().endswith((".csv", ".csv.gz", ".parquet", ".feather", ".json")):
            raise ValueError(
                f"X = {X!r} is the name of a file, not of a dataset; pass its rows, such as "
                f"pandas.{'read_parquet' if X.lower().endswith('.parquet') else 'read_csv'}({X!r})"
            )

    def charged_score(
        self, dataset: str, metric: str, *, epsilon: float, delta: float = 0.0, database: Database | None = None
    ) -> dict[str, Any]:
        """Score this model on a registered dataset, with noise, charged to its budget.

        See `Database.score`. For your own rows use `score`, which is exact.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        metric : str
            A metric of `Database.score`.
        epsilon, delta : float
            The guarantee of this score. δ = 0 is pure ε-differential privacy.
        database : Database, optional
            The database of model and dataset (default: the estimator's own).

        Returns
        -------
        dict
            The score, the error that its noise may cause, and the receipt.

        Raises
        ------
        ValueError
            If the model was fitted on rows, or model, metric, dataset or budget does not allow it.
        ChargedError
            If it fails after the charge.
        """
        check_is_fitted(self)
        if self._columns:
            raise ValueError(
                "this model was trained on rows, and is not in the database of a dataset; score it on rows by "
                "score(X, y), or fit it on a dataset"
            )
        if database is not None:
            return database.score(self.model_id_, dataset, metric, epsilon=epsilon, delta=delta)
        with self._opened() as opened:
            return opened.score(self.model_id_, dataset, metric, epsilon=epsilon, delta=delta)

    def __sklearn_clone__(self) -> Self:
        clone: Self = BaseEstimator.__sklearn_clone__(copy(self))
        clone.database, clone._limited_in = self.database, self._limited_in
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _more_tags(self) -> dict[str, Any]:  # before scikit-learn 1.6
        return {"non_deterministic": True}

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return state | {"database": None, "_limited_in": odometer.limiting_process() or self._limited_in}

    @contextmanager
    def _opened(self) -> Iterator[Database]:
        """Yield the database; close it at the end if it was opened here."""
        if isinstance(self.database, str):
            raise ValueError(
                "database is a URL, which would be printed with its password wherever the estimator is; pass "
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
                f"table {alchemy.source_name(X)} is not a dataset that this role may train on; register it, or pass "
                "select(table) to read its rows with your own rights"
            )
        return name

    def _read(self, database: Database, X: Any) -> dict[str, list[Any]]:
        """Return the values of a query by column; warn if it reads rows of a dataset."""
        from dbdp.interfaces.python import alchemy

        values = database.rows(X)
        for name in filter(None, map(database.dataset_of, alchemy.tables_of(X))):
            warnings.warn(
                f"the query reads rows of dataset {name!r} with your own rights, and a model trained on them is not "
                f"charged to its budget: do not publish it, or train by fit({name!r})",
                PrivacyLeakWarning,
                stacklevel=4,
            )
        return values

    def _trained(self, database: Database, dataset: str, rows: _Rows | None = None) -> Self:
        """Train on a registered dataset and set the attributes of the release; `rows` if it was loaded from them."""
        with progress_bar(enabled=self.progress) as report:
            model = database.train(dataset, self.request, report)
        models = database.query("select declaration::text as d from dbdp.model where id = $1", model.id)
        self.declaration_ = Declaration.from_json(models[0]["d"])
        self._set_model(model)
        self.receipt_ = model.receipt
        self.model_id_ = model.id
        self._columns = list(rows.frame) if rows else None
        if rows is None:
            self._set_columns(self.declaration_)
        return self

    def _set_model(self, model: Model) -> None:
        """Set the attributes of the released model itself."""
        self.coef_ = np.atleast_2d(np.array(model.coefficients))
        self.intercept_ = np.array(model.intercepts)
        self.feature_names_ = model.feature_names

    def _set_columns(self, declaration: Declaration) -> None:
        """Set the attributes of scikit-learn that describe the columns, from a dataset's declaration."""
        if declaration.vector:
            self.n_features_in_ = declaration.vector.length
            self.__dict__.pop("feature_names_in_", None)
        else:
            self.n_features_in_ = len(declaration.columns)
            self.feature_names_in_ = np.array(declaration.columns, dtype=object)

    def _fit_rows(self, X: Any, y: Any) -> Self:
        """Train on rows in the private server; warn if a public fact was read from them."""
        if self.name is not None:
            raise ValueError(
                f"name = {self.name!r} is of models of a registered dataset, and these are rows; leave it out"
            )
        rows, load = self._frozen(X, y) if is_spark(X) else self._loaded(X, y)
        if leaks := rows.labels.leaks + rows.features.leaks:
            listed = ", ".join(leaks[:5]) + (", …" if len(leaks) > 5 else "")
            warnings.warn(
                f"read from the rows, which voids the guarantee: {listed}; pass public values instead",
                PrivacyLeakWarning,
                stacklevel=4,
            )
        for misfit in rows.misfits:
            warnings.warn(f"{misfit}; check spelling, case and units", UserWarning, stacklevel=4)
        declared = {"intercept": self.intercept, **rows.labels.declared}
        with load(rows.features.features, self.request, **declared) as (database, dataset):
            odometer.check_process(self._limited_in)
            odometer.charge(list(rows.frame), database.guarantee(dataset, self.request))
            return self._trained(database, dataset, rows)

    def _loaded(self, X: Any, y: Any) -> tuple[_Rows, Load]:
        """Return in-memory data, and how it is loaded."""
        from dbdp.interfaces.python.loading import temporary_dataset

        rows = self._checked(X, y)
        return rows, partial(temporary_dataset, rows.frame, rows.labels.stored)

    def _frozen(self, X: Any, y: Any) -> tuple[_Rows, Load]:
        """Return the columns of a DataFrame of Spark with what was read of them, and how its rows are frozen."""
        from dbdp.interfaces.python.estimators.freezing import Frozen, frozen_dataset

        frozen = Frozen.of(X, y)
        frame, stated = frozen.frame(self.bounds), getattr(self, self._of_label)
        self.n_features_in_, self.feature_names_in_ = len(frame), np.array(list(frame), dtype=object)
        labels = self._labels(frozen.label_values(stated, are_classes=self._of_label == "classes"), None)
        rows = _Rows(frame, labels, features_of(frame, self.bounds), are_extremes=True)
        return rows, partial(frozen_dataset, frozen, labels.classes)

    def _checked(self, X: Any, y: Any) -> _Rows:
        """Return rows and labels that can be trained on."""
        if isinstance(y, str):
            self._check_is_no_feature(y)
            X, y = frames.without(X, y)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; pass the labels of the "
                "rows, or the name of their column"
            )
        declared, y = frames.categories_of(y), frames.labels_of(y)
        if frames.is_frame(X):
            frame, y = self._checked_frame(X), column_or_1d(y, warn=True)
            check_consistent_length(next(iter(frame.values())).values, y)
        else:
            X, y = validate_data(self, X, y, dtype=np.float64)
            frame = frames.of_array(X, [f"x{place}" for place in range(X.shape[1])])
        features = features_of(frame, self.bounds)
        return _Rows(frame, self._labels(y, declared), features)

    def _check_is_no_feature(self, label: str) -> None:
        """Raise ValueError if bounds name the label, as those from a dictionary of all columns do."""
        if isinstance(self.bounds, Mapping) and label in self.bounds:
            raise ValueError(
                f"bounds name {label!r}, which is the label; leave it out there, and pass {self._of_label}="
            )

    def _checked_frame(self, X: Any) -> Frame:
        frame = frames.frame_of(X)
        frames.check_complete(frame)
        if not frame or not len(next(iter(frame.values())).values):
            raise ValueError("X has no rows or no columns; pass at least one of each")
        if frames.is_pandas(X):
            validate_data(self, X, skip_check_array=True)
        else:
            self.n_features_in_, self.feature_names_in_ = len(frame), np.array(list(frame), dtype=object)
        return frame

    @abstractmethod
    def _labels(self, y: np.ndarray, declared: tuple[Any, ...] | None) -> Labels:
        """Return labels as they are stored, with their declaration.

        Parameters
        ----------
        y : array, shape (n,)
            The labels.
        declared : tuple or None
            The classes that the labels' type declares.
        """

    def _scores(self, X: Any) -> np.ndarray:
        """Return the decision values of rows, shape (n, outputs)."""
        check_is_fitted(self)
        _check_are_rows(X)
        if is_sql(X):
            with self._opened() as database:
                X = database.rows(X)
        rows = _shaped(self.declaration_, self._in_order(X))
        frames.check_complete_array(rows, self._names)
        return self._decisions(rows)

    def _decisions(self, rows: np.ndarray) -> np.ndarray:
        """Return the decision values of complete rows in the order of the declaration, shape (n, outputs)."""
        return decisions(self.declaration_, design_matrix(self.declaration_, rows), self.coef_, self.intercept_)

    @property
    def _names(self) -> list[str]:
        """The names of the columns, or of an array's numbers, in the order of the declaration."""
        if not self.declaration_.vector:
            return self.declaration_.columns
        return self._columns or self.declaration_.feature_names

    def _in_order(self, X: Any) -> Any:
        """Return rows as an array, with the columns in the order of the declaration."""
        declaration, fitted = self.declaration_, self._columns
        if frames.is_frame(X):
            if fitted and frames.is_pandas(X):
                validate_data(self, X, reset=False, skip_check_array=True)
            if declaration.vector and not fitted:
                return frames.arrays_of(X, declaration.vector.column)
            return frames.array_of(X, self._names)
        if not fitted:
            return X
        checked = validate_data(self, X, reset=False, dtype=object if declaration.categorical else np.float64)
        return checked[:, [fitted.index(name) for name in self._names]]


class _Scored:
    """Refuses the name of a dataset where scikit-learn's score takes rows."""

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy, or of numbers R², on rows, exactly: do not publish it unless the rows are public.

        Parameters
        ----------
        X
            Rows, as `predict` takes them. For the name of a dataset call `charged_score`.
        y : array, shape (n,), or str
            Their labels, or the name of the column that has them.
        sample_weight : array, shape (n,), optional
            Weights of the rows in the score.

        Returns
        -------
        float
            The score.

        Raises
        ------
        ValueError
            If X is a name, or y is missing.
        """
        _check_are_rows(X)
        if y is None:
            raise ValueError("y is required, e.g. the labels of the rows, or the name of their column")
        if isinstance(y, str):
            X, y = frames.without(X, y)
        exact: float = super().score(X, y, sample_weight)  # type: ignore[misc]
        return exact


class Classifier(_Scored, ClassifierMixin, _Estimator):
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

    def _trained(self, database: Database, dataset: str, rows: _Rows | None = None) -> Self:
        super()._trained(database, dataset, rows)
        self._classes = rows.labels.classes if rows else None
        if rows is None and (declared := self.declaration_.classes):
            self._sort_outputs(np.argsort(declared))
        return self

    def _sort_outputs(self, order: np.ndarray) -> None:
        """Put the outputs of the model into the order of `classes_`."""
        self.coef_, self.intercept_ = self.coef_[order], self.intercept_[order]

    def _labels(self, y: np.ndarray, declared: tuple[Any, ...] | None) -> Labels:
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
        return Labels(np.array(stored, dtype=object), fields_of_label, classes, leaks)


class Probabilistic(Classifier):
    """The base class of the classifiers whose scores give probabilities."""

    @property
    def _is_softmax(self) -> bool:
        """Whether the classes were learned together; else each of several has a logistic probability of its own."""
        return self.receipt_["algorithm"] == "preconditioned_gd" or self.receipt_.get("classes") == "softmax"

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
        if scores.shape[1] > 1 and self._is_softmax:
            together: np.ndarray = softmax(scores, axis=1)
            return together
        shares: np.ndarray = expit(scores)
        if scores.shape[1] == 1:
            return np.column_stack([1.0 - shares, shares])
        return shares / np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(float).tiny)

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


class _Regressor(_Scored, RegressorMixin, _Estimator):
    """A linear regression; the base class of the regressors."""

    _explained, _of_label = _OF_NUMBERS, "label_bounds"
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

    def _labels(self, y: np.ndarray, declared: tuple[Any, ...] | None) -> Labels:
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
        return Labels(numbers, {"label_bounds": [lower, upper]}, None, ["bounds of y"] if is_read else [])


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


def design_matrix(declaration: Declaration, X: Any) -> np.ndarray:
    """Return the matrix that coefficients multiply: clipped numbers on their scales or as bins, then indicators.

    Parameters
    ----------
    declaration : Declaration
        The declared columns.
    X : array, shape (n, columns), or (n, length) for an array column
        Rows, in the order of `declaration.columns`.

    Returns
    -------
    array, shape (n, features)
        float64.

    Raises
    ------
    ValueError
        If X has another shape.
    """
    rows = _shaped(declaration, X)
    if declaration.vector:
        return rows
    numbers = [
        coordinates
        for place, feature in enumerate(declaration.numeric)
        for coordinates in _numbers(feature, rows[:, place].astype(np.float64))
    ]
    texts = {
        place: texts_of(rows[:, place], is_boolean=set(feature.categories) <= {"true", "false"})
        for place, feature in enumerate(declaration.categorical, len(declaration.numeric))
    }
    indicators = [
        texts[place] == category
        for place, feature in enumerate(declaration.categorical, len(declaration.numeric))
        for category in feature.categories
    ]
    return np.column_stack([*numbers, *indicators, *_cells(declaration, rows, texts)]).astype(np.float64)


def _cells(declaration: Declaration, rows: np.ndarray, texts: Mapping[int, np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the coordinates of the cells of pairs; NaN in a column gives NaN in every cell."""
    groups = {side: _groups(side, rows, texts) for side in sides(declaration.products)}
    for pair in declaration.products:
        (first, unknown), (second, missing) = groups[pair.first], groups[pair.second]
        cells = cells_of(pair, first, second)
        yield from ((cells == cell) + unknown + missing for cell in range(pair.width))


def _groups(side: Side, rows: np.ndarray, texts: Mapping[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the groups of a column of a pair, and NaN for each missing number, else 0."""
    if isinstance(side.feature, Numeric):
        values = rows[:, side.place].astype(np.float64)
        return groups_of(side, values, None), np.where(np.isnan(values), np.nan, 0.0)
    known = {category: place for place, category in enumerate(side.feature.categories)}
    places = np.array([known.get(text, -1) for text in texts[side.place]], np.int64)
    return groups_of(side, places, places), np.zeros(len(rows))


def _first_word(values: np.ndarray) -> Any:
    """Return the first of some labels that is not a number."""
    for value in values.tolist():
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return values[0]


def _numbers(feature: Numeric, values: np.ndarray) -> list[np.ndarray]:
    """Return the coordinates of a numeric column; NaN gives NaN in every bin."""
    if not feature.bins:
        return [positions(feature, values)]
    places, missing = bins_of(feature, values), np.where(np.isnan(values), np.nan, 0.0)
    return [(places == place) + missing for place in range(feature.bins)]


def texts_of(values: np.ndarray, *, is_boolean: bool) -> np.ndarray:
    """Return the values of a column as the texts of its categories; a boolean column may hold 0 and 1."""

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
