"""What scikit-learn estimators share: train on a registered dataset or on the caller's rows, predict on rows.

Shapes: X (n, columns) with one column for each declared column, or (n, length) for an array.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from dbdp.algorithms import Request
from dbdp.algorithms import words as vocabulary
from dbdp.interfaces.python import frames
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.declaring import PrivacyLeakWarning, features_of, kept_columns, requiring
from dbdp.interfaces.python.estimators import inputs, odometer
from dbdp.interfaces.python.estimators.design import check_complete, design_matrix, keeps_nulls, shaped
from dbdp.interfaces.python.estimators.inputs import GivenRows, StoredLabels, warn
from dbdp.interfaces.python.estimators.plain_pipeline import Portable
from dbdp.interfaces.python.estimators.shaping import Shaped
from dbdp.interfaces.python.frames import Frame, is_spark
from dbdp.interfaces.python.keywords import EXPLAINED
from dbdp.interfaces.python.loading import Given, InMemory, temporary_dataset
from dbdp.interfaces.python.progress_bar import progress_bar
from dbdp.registry.declarations import Declaration
from dbdp.registry.results.column_units import decisions
from dbdp.registry.results.models import ReleasedModel

try:
    from sklearn.utils.validation import validate_data

    _CHECK_OF_GAPS = "ensure_all_finite"
except ImportError:  # before scikit-learn 1.6
    _CHECK_OF_GAPS = "force_all_finite"

    def validate_data(
        estimator: Any, X: Any, y: Any = "no_validation", *, skip_check_array: bool = False, **options: Any
    ) -> Any:
        """Check rows and record their columns, as later versions do."""
        return estimator._validate_data(X, y, cast_to_ndarray=not skip_check_array, **options)


def _accepting(*, gaps: bool) -> dict[str, bool]:
    """Return the option of `validate_data` that accepts rows with missing values, or none."""
    return {_CHECK_OF_GAPS: False} if gaps else {}


class Estimator(Shaped, Portable, BaseEstimator, ABC):
    """A model with differential privacy; the base class of the estimators."""

    loss: ClassVar[str]
    _of_label: ClassVar[str]  # the keyword of the public facts of the label
    _explained: ClassVar[dict[str, str]]  # what the docstrings of classifiers and of regressors have of their own
    _synonyms: ClassVar[Mapping[str, str]] = vocabulary.SYNONYMS  # other names of the parameters
    _columns: list[str] | None = None  # of the rows that were passed to fit; None for a dataset
    _limited_in: int | None = None  # the process in which a SpendingLimit was in force when this was pickled

    def __init_subclass__(cls, **options: Any) -> None:
        """Append the parameters and attributes, which estimators share, to the docstring of an estimator."""
        super().__init_subclass__(**options)
        if "loss" in vars(cls):
            cls.__doc__ = f"{cls.__doc__}{EXPLAINED.format(**cls._explained)}"

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
        named = vocabulary.own_names(type(self).__name__, params, known, self._synonyms)
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
        vocabulary.own_names(f"{type(self).__name__}.fit", words, ())
        with self._source(X, y) as (database, dataset, rows):
            with progress_bar(enabled=self.progress) as report:
                model = database.train(dataset, self.request, report)
            self._set_release(database, model, rows)
        if warning := self.receipt_.get("warning"):  # from public facts
            warn(warning)
        return self

    @contextmanager
    def _source(self, X: Any, y: Any) -> Iterator[tuple[Database, str, GivenRows | None]]:
        """Yield a database, the name of a dataset in it, and the rows if it was loaded from them."""
        if isinstance(X, Database):
            yield X, y, None
        elif not isinstance(X, str) and not inputs.is_sql(X):
            with self._loaded(X, y) as loaded:
                yield loaded
        else:
            inputs.check_is_no_file(X)
            with self._opened() as database:
                name = X if isinstance(X, str) else inputs.dataset_of(database, X)
                if name is None:
                    with self._loaded(inputs.values_of(database, X), y) as loaded:
                        yield loaded
                else:
                    self._check_facts(name, y)
                    yield database, name, None

    def _check_facts(self, dataset: str, y: Any) -> None:
        """Raise ValueError for labels of a dataset; warn if public facts were passed, which it has declared itself."""
        if y is not None:
            raise ValueError(f"y is passed, but dataset {dataset!r} has a declared label; leave y out")
        passed = [name for name in ("bounds", self._of_label) if getattr(self, name) is not None]
        if passed:
            warn(
                f"{' and '.join(passed)} describe rows that are passed to fit, and are not used: dataset {dataset!r} "
                "has a declaration of its own"
            )

    @contextmanager
    def _loaded(self, X: Any, y: Any) -> Iterator[tuple[Database, str, GivenRows]]:
        """Load rows into the private server; warn if a public fact was read from them."""
        if self.name is not None:
            raise ValueError(
                f"name = {self.name!r} is of models of a registered dataset, and these are rows; leave it out"
            )
        rows, given = self._frozen(X, y) if is_spark(X) else self._checked(X, y)
        if leaks := rows.labels.leaks + rows.features.leaks:
            listed = ", ".join(leaks[:5]) + (", …" if len(leaks) > 5 else "")
            warn(
                f"read from the rows, which voids the guarantee: {listed}; pass public values instead",
                PrivacyLeakWarning,
            )
        for misfit in rows.misfits:
            warn(f"{misfit}; check spelling, case and units")
        declared = {"intercept": self.intercept, **rows.labels.declared}
        with temporary_dataset(given, rows.features.features, self.request, **declared) as (database, dataset):
            odometer.check_process(self._limited_in)
            odometer.charge(list(rows.frame), database.guarantee(dataset, self.request))
            yield database, dataset, rows

    def _frozen(self, X: Any, y: Any) -> tuple[GivenRows, Given]:
        """Return the columns of a DataFrame of Spark with what was read of them, and its rows to be frozen."""
        from dbdp.interfaces.python.estimators.freezing import Freezing, Frozen

        frozen = Frozen.of(X, y)
        frame, stated = frozen.frame(self.bounds), getattr(self, self._of_label)
        self.n_features_in_, self.feature_names_in_ = len(frame), np.array(list(frame), dtype=object)
        labels = self._labels(frozen.label_values(stated, are_classes=self._of_label == "classes"), None)
        rows = GivenRows(frame, labels, features_of(frame, self.bounds), are_extremes=True)
        return rows, Freezing(frozen, labels.classes)

    def _checked(self, X: Any, y: Any) -> tuple[GivenRows, Given]:
        """Return rows and labels that can be trained on, and as they are loaded."""
        if isinstance(y, str):
            inputs.check_is_no_feature(y, self.bounds, self._of_label)
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
            X, y = validate_data(self, X, y, dtype=np.float64, **_accepting(gaps=bool(kept_columns(self.bounds))))
            frame = frames.of_array(X, [f"x{place}" for place in range(X.shape[1])])
            self._check_complete(frame)
        features = requiring(features_of(frame, self.bounds))
        rows = GivenRows(frame, self._labels(y, declared), features)
        return rows, InMemory(frame, rows.labels.stored)

    def _checked_frame(self, X: Any) -> Frame:
        frame = frames.frame_of(X)
        self._check_complete(frame)
        if not frame or not len(next(iter(frame.values())).values):
            raise ValueError("X has no rows or no columns; pass at least one of each")
        if frames.is_pandas(X):
            validate_data(self, X, skip_check_array=True)
        else:
            self.n_features_in_, self.feature_names_in_ = len(frame), np.array(list(frame), dtype=object)
        return frame

    def _check_complete(self, frame: Frame) -> None:
        """Raise ValueError if a column has missing values that its bounds have no meaning for."""
        kept = kept_columns(self.bounds)
        frames.check_complete({name: column for name, column in frame.items() if name not in kept})

    @abstractmethod
    def _labels(self, y: np.ndarray, declared: tuple[Any, ...] | None) -> StoredLabels:
        """Return labels (n,) as they are stored; `declared` are the classes that their type declares."""

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

    def _set_release(self, database: Database, model: ReleasedModel, rows: GivenRows | None) -> None:
        """Set the attributes of a release; `rows` if its dataset was loaded from them."""
        models = database.query("select declaration::text as d from dbdp.model where id = $1", model.id)
        self.declaration_ = Declaration.from_json(models[0]["d"])
        self._set_model(model)
        self.receipt_ = model.receipt
        self.model_id_ = model.id
        self._columns = list(rows.frame) if rows else None
        if rows is None:
            self._set_columns(self.declaration_)

    def _set_model(self, model: ReleasedModel) -> None:
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

    def _scores(self, X: Any) -> np.ndarray:
        """Return the decision values of rows, shape (n, outputs)."""
        check_is_fitted(self)
        inputs.check_are_rows(X)
        if inputs.is_sql(X):
            with self._opened() as database:
                X = database.rows(X)
        rows = shaped(self.declaration_, self._in_order(X))
        check_complete(self.declaration_, rows, self._names)
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
        dtype = object if declaration.categorical else np.float64
        checked = validate_data(self, X, reset=False, dtype=dtype, **_accepting(gaps=keeps_nulls(declaration)))
        return checked[:, [fitted.index(name) for name in self._names]]


class Scored:
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
        inputs.check_are_rows(X)
        if y is None:
            raise ValueError("y is required, e.g. the labels of the rows, or the name of their column")
        if isinstance(y, str):
            X, y = frames.without(X, y)
        exact: float = super().score(X, y, sample_weight)  # type: ignore[misc]
        return exact
