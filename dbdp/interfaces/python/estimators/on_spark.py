"""Predictions of a fitted estimator on a DataFrame of Spark: as a pandas UDF, and as a Transformer of Spark ML."""

import copy
from typing import Any

import numpy as np
import pandas as pd
from pyspark.ml import Transformer
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

_TYPES = {"b": "boolean", "i": "bigint", "u": "bigint", "f": "double"}


def prediction_udf(estimator: Any) -> Any:
    """Return a pandas UDF that predicts from a struct of the estimator's columns; null for a row with a null.

    The workers need dbdp and scikit-learn. What is predicted is a release's post-processing: nothing is charged.

    Parameters
    ----------
    estimator : a fitted estimator of columns
        One of `dbdp.LogisticRegression`, `dbdp.LinearSVC`, `dbdp.Ridge`, …

    Returns
    -------
    function
        `udf(F.struct(*columns))` is a column of classes, or of numbers.

    Raises
    ------
    ValueError
        If the estimator is not fitted, or was fitted on an array.
    """
    columns_of(estimator)
    sent = copy.copy(estimator)
    sent.database = None  # a connection stays here

    make: Any = pandas_udf  # its stubs do not know this form

    def predict(rows: pd.DataFrame) -> pd.Series:
        complete = rows.notna().all(axis=1)
        predicted = pd.Series([None] * len(rows), dtype=object)
        if complete.any():
            predicted[complete.to_numpy()] = sent.predict(rows[complete])
        return predicted

    return make(predict, _type_of(estimator))


def columns_of(estimator: Any) -> list[str]:
    """Return the names of the columns that a fitted estimator predicts from.

    Raises
    ------
    ValueError
        If the estimator is not fitted, or was fitted on an array.
    """
    declaration = getattr(estimator, "declaration_", None)
    if declaration is None or declaration.vector:
        what = "is not fitted" if declaration is None else "was fitted on an array"
        raise ValueError(f"{type(estimator).__name__} {what}; fit it on columns first")
    return list(declaration.columns)


def _type_of(estimator: Any) -> str:
    """Return Spark's type of a prediction."""
    if not hasattr(estimator, "classes_"):
        return "double"
    return _TYPES.get(np.asarray(estimator.classes_).dtype.kind, "string")


class PredictionTransformer(Transformer):
    """Adds a column of predictions to a DataFrame, as a stage of a pipeline; it cannot be saved.

    Parameters
    ----------
    estimator : a fitted estimator of columns
        As `prediction_udf` takes it.
    column : str
        Name of the column that is added.
    """

    def __init__(self, estimator: Any, column: str = "prediction") -> None:
        super().__init__()
        self._estimator, self._column = estimator, column

    def _transform(self, dataset: Any) -> Any:
        names = [dataset[name] for name in columns_of(self._estimator)]
        return dataset.withColumn(self._column, prediction_udf(self._estimator)(F.struct(*names)))
