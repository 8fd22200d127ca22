"""Fitted linear models as pipelines of scikit-learn's own classes, which predict where dbdp is not installed.

A column becomes the coordinates that the coefficients multiply, see `design_matrix`: numbers are clipped, and bent by
asinh. B-splines of degree 0 are bins, and those of degree 1 are lines between knots.
"""

from functools import partial
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, PolynomialFeatures, SplineTransformer
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from dbdp.learning.rows.features import CATEGORY, CENTRED, UNIT, Categorical, Numeric, constant_of
from dbdp.optional import needing
from dbdp.registry.declarations import Declaration
from dbdp.registry.results import class_probabilities
from dbdp.registry.results.column_units import column_scales


class Portable:
    """Has a form that needs no dbdp."""

    def to_sklearn(self) -> Pipeline:
        """Return this fitted linear model as a pipeline of scikit-learn's own classes, which predicts without dbdp.

        It takes pandas DataFrames with the columns by name: numbers, and categories as texts, with None or NaN for
        NULL. A model of an array takes arrays. It was not fitted on rows, and has only what was released.

        Returns
        -------
        sklearn.pipeline.Pipeline
            The pipeline, to be stored by `pickle.dump`.

        Raises
        ------
        ValueError
            If scikit-learn's classes cannot express the model: networks, pairs of columns, and probabilities of classes
            that were learned one against the rest.
        """
        check_is_fitted(self)
        return _pipeline(self)


def _pipeline(estimator: Any) -> Pipeline:
    """Return a pipeline that predicts as a fitted estimator of dbdp does; raise ValueError if there is none."""
    declaration: Declaration = estimator.declaration_
    _check(estimator, declaration)
    times, steps = np.ones(estimator.coef_.shape[1], int), [FunctionTransformer(validate=True)]
    if not declaration.vector:
        times, steps = _coordinates_of_each(declaration), [_encoded(declaration)]
    coefficients, intercepts = np.repeat(estimator.coef_, times, axis=1), estimator.intercept_
    if declaration.encoding == UNIT:
        origins, lengths, constant = _unit_scales(declaration)
        origins, lengths = np.repeat(origins, times), np.repeat(lengths, times)
        steps += _of_norm_one(origins, lengths, is_constant=declaration.intercept)
        lasts = (
            (intercepts + coefficients @ origins)[:, None] if declaration.intercept else np.zeros((len(intercepts), 0))
        )
        coefficients = np.hstack([lasts, coefficients * lengths]) / constant
        intercepts = np.zeros(len(intercepts))
    return make_pipeline(*steps, _last(estimator, declaration, coefficients, intercepts))


def _check(estimator: Any, declaration: Declaration) -> None:
    """Raise ValueError for a model that scikit-learn's classes cannot express."""
    several = declaration.kind == "classes" and hasattr(estimator, "predict_proba")
    misfits = {
        "is a network": not hasattr(estimator, "coef_"),
        "has pairs of columns": bool(declaration.products),
        "learned each class against the rest": several and not class_probabilities.are_softmax(estimator.receipt_),
    }
    for misfit in (reason for reason, is_so in misfits.items() if is_so):
        raise ValueError(
            f"the model {misfit}, which scikit-learn's own classes cannot express; keep the estimator itself, by "
            "pickle.dump(dbdp.load(MODEL), FILE), which needs dbdp where it predicts"
        )


def _encoded(declaration: Declaration) -> ColumnTransformer:
    """Return the transformer of a DataFrame to the coordinates of its columns."""
    with needing("a pipeline of columns"):
        import pandas
    parts = [(each.column, _of_column(each), [each.column]) for each in declaration.parts]
    row = {each.column: each.categories[0] if isinstance(each, Categorical) else 0.0 for each in declaration.parts}
    return ColumnTransformer(parts).fit(pandas.DataFrame([row, row]))  # it learns nothing of these rows


def _unit_scales(declaration: Declaration) -> tuple[np.ndarray, np.ndarray, float]:
    """Return origins and lengths of coordinates whose norm, with a constant of 1, divides a row; and what scales both.

    See `dbdp.registry.results.column_units.decisions`: an array has another constant.
    """
    if vector := declaration.vector:
        constant = constant_of(vector.length) if declaration.intercept else 1.0
        return np.zeros(vector.length), np.full(vector.length, vector.norm_bound * constant), constant
    origins, lengths, _ = column_scales(declaration)
    return origins, lengths, 1.0


def _of_norm_one(origins: np.ndarray, lengths: np.ndarray, *, is_constant: bool) -> list[Any]:
    """Return the steps from coordinates to those of norm 1, after a constant if the model has one."""
    constant = PolynomialFeatures(1, include_bias=is_constant).fit(np.zeros((1, len(origins))))
    return [
        FunctionTransformer(partial(np.subtract, origins)),
        FunctionTransformer(partial(np.multiply, -1 / lengths)),
        constant,
        Normalizer(),
    ]


def _of_column(feature: Numeric | Categorical) -> Any:
    """Return the transformer of a column."""
    if isinstance(feature, Numeric):
        return _of_number(feature)
    values = np.array([*feature.categories, *([None, np.nan] if feature.null == CATEGORY else [])], dtype=object)
    return OneHotEncoder(categories=[values], handle_unknown="ignore", sparse_output=False)


def _of_number(feature: Numeric) -> Pipeline:
    missing, clipped = feature.missing, {"a_min": feature.lower, "a_max": feature.upper}
    known = (
        FunctionTransformer(validate=True)
        if missing is None
        else FunctionTransformer(np.nan_to_num, kw_args={"nan": missing, "posinf": missing, "neginf": missing})
    )
    value = make_pipeline(known, FunctionTransformer(np.clip, kw_args=clipped), *_scale(feature))
    if feature.indicator:
        absent = make_pipeline(FunctionTransformer(np.isfinite), FunctionTransformer(np.logical_not))
        value = make_union(value, absent)
    return make_pipeline(FunctionTransformer(np.asarray, kw_args={"dtype": float}), value)


def _scale(feature: Numeric) -> list[Any]:
    """Return the steps from a clipped number to its coordinates."""
    if feature.bins:
        return [_spline(0, (feature.lower, *feature.edges, feature.upper))]
    steps: list[Any] = []
    if feature.bend is not None:
        centre, factor = feature.bend
        bend = partial(np.subtract, centre), partial(np.multiply, -factor), np.arcsinh
        steps = [FunctionTransformer(each) for each in bend]
    return [*steps, _spline(1, feature.positions_of_knots)] if feature.knots else steps


def _spline(degree: int, knots: tuple[float, ...]) -> SplineTransformer:
    return SplineTransformer(degree=degree, knots=np.array(knots)[:, None], extrapolation="constant")


def _coordinates_of_each(declaration: Declaration) -> np.ndarray:
    """Return how many coordinates each coefficient has: two for NULL as a category, which is None or NaN."""
    times = [1] * sum(each.width for each in declaration.numeric)
    for each in declaration.categorical:
        times += [1] * len(each.categories) + [2] * (each.null == CATEGORY)
    return np.array(times)


def _last(estimator: Any, declaration: Declaration, coefficients: np.ndarray, intercepts: np.ndarray) -> Any:
    """Return the linear model of scikit-learn with these coefficients."""
    if declaration.kind == "real":
        last = LinearRegression()
        last.coef_, last.intercept_, last.n_features_in_ = coefficients[0], intercepts[0], coefficients.shape[1]
        return _clipped(last, declaration) if declaration.encoding == CENTRED else last
    last = LogisticRegression() if hasattr(estimator, "predict_proba") else LinearSVC()
    last.coef_, last.intercept_, last.n_features_in_ = coefficients, intercepts, coefficients.shape[1]
    last.classes_ = estimator.classes_
    return last


def _clipped(regressor: LinearRegression, declaration: Declaration) -> TransformedTargetRegressor:
    """Return a regressor with its predictions clipped to the bounds of the label."""
    lower, upper = declaration.label_bounds or (-np.inf, np.inf)
    clip = partial(np.clip, a_min=lower, a_max=upper)
    clipped = TransformedTargetRegressor(LinearRegression(), func=np.positive, inverse_func=clip, check_inverse=False)
    clipped.fit(np.zeros((2, regressor.n_features_in_)), [0.0, 1.0])
    clipped.regressor_ = regressor
    return clipped
