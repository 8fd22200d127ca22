"""Releases: coefficients in the user's units predict as the models over packed rows do, for every kind of label."""

from typing import Any

import numpy as np
import psycopg
import pytest
from released import stored

from dbdp.learning.rows.encoding import ColumnEncoder, RandomProjection, RealLabels, VectorEncoder
from dbdp.learning.rows.features import Numeric
from dbdp.registry.declarations import Declaration, declare
from dbdp.registry.results.column_units import MOST_LISTED, centred, in_column_units, standard_errors

KINDS: dict[str, dict[str, Any]] = {
    "binary": {"positive": "1"},
    "classes": {"classes": ["a", "b", "c"]},
    "real": {"label_bounds": [-10.0, 50.0]},
}
FEATURES: dict[str, dict[str, Any]] = {
    "array": {"x": {"length": 12, "norm": 40.0}},
    "columns": {"u": [-5, 20], "v": [3.0, 3.5], "w": [0, 1e6], "c": ["p", "q", "r"], "d": ["yes"]},
}
MAP = RandomProjection(4, 3)


def declared(kind: str, features: str, *, intercept: bool) -> Declaration:
    return declare(label="y", features=FEATURES[features], intercept=intercept, **KINDS[kind])


def rows(features: str, intercept: bool, projection: RandomProjection | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the user's units, with indicators, and packed; short enough that none is clipped."""
    random = np.random.default_rng(1)
    raw: np.ndarray
    if features == "array":
        values = random.normal(size=(30, 12))
        encoder: VectorEncoder | ColumnEncoder = VectorEncoder(12, 40.0, intercept, projection=projection)
        raw = design = values
    else:
        numbers = random.uniform([-5, 3, 0], [0, 3.2, 2e5], size=(30, 3))
        codes = random.integers(0, 4, size=(30, 2))
        bounded = (Numeric("u", -5.0, 20.0), Numeric("v", 3.0, 3.5), Numeric("w", 0.0, 1e6))
        encoder = ColumnEncoder(bounded, ((0.0, 1.0, 2.0), (0.0,)), intercept, projection=projection)
        raw = np.hstack([numbers, codes])
        design = np.hstack([numbers, codes[:, :1] == [[0, 1, 2]], codes[:, 1:] == 0]).astype(float)
    layout = [("label", "<i4"), ("header", "<i4", (5,)), ("elements", "<f8", (raw.shape[1],))]
    records = np.zeros(len(raw), layout)
    records["label"], records["header"], records["elements"] = 1, (1, 0, 701, raw.shape[1], 1), raw
    return design, encoder.rows(records.tobytes())[:, : encoder.dimension].astype(float)


@pytest.mark.parametrize("projection", [None, MAP], ids=["whole", "projected"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_predict_as_the_models_do(kind, features, intercept, projection):
    declaration = declared(kind, features, intercept=intercept)
    design, packed = rows(features, intercept, projection)
    norms = np.linalg.norm(packed, axis=1)
    assert norms.max() < 1 - 1e-6  # a clipped row has another score
    models = np.random.default_rng(2).normal(size=(declaration.outputs, packed.shape[1]))
    coefficients, intercepts = in_column_units(declaration, models, projection)
    assert coefficients.shape == (declaration.outputs, len(declaration.feature_names))
    assert intercepts.shape == (declaration.outputs,)
    scores = packed @ models.T
    expected = 20.0 + 30.0 * scores if kind == "real" else scores
    decisions = design @ coefficients.T + intercepts
    assert np.abs(decisions - expected).max() < 1e-4 * np.abs(expected).max()
    assert np.std(expected) > 1e-3


def test_one_model_is_taken_as_it_is():
    declaration = declared("binary", "array", intercept=True)
    model = np.arange(13.0)
    coefficients, intercepts = in_column_units(declaration, model)
    several = in_column_units(declaration, model[None])
    assert coefficients.tolist() == several[0][0].tolist()
    assert float(intercepts) == several[1][0]


def test_centred_weights_decide_alike():
    """Centred weights decide alike if each row has a category, and if a number is added to all of a column."""
    declaration = declared("classes", "columns", intercept=True)
    design, _ = rows("columns", True, None)
    design = design[(design[:, 3:6].sum(axis=1) == 1) & (design[:, 6] == 1)]
    random = np.random.default_rng(4)
    coefficients, intercepts = random.normal(size=(3, 7)), random.normal(size=3)
    weights, ends = centred(declaration, coefficients, intercepts)
    assert design @ weights.T + ends == pytest.approx(design @ coefficients.T + intercepts)
    assert weights[:, 3:6].sum(axis=1) == pytest.approx(0, abs=1e-12)
    moved = coefficients + np.outer([5.0, -7.0, 9.0], [0, 0, 0, 1, 1, 1, 0])
    again = centred(declaration, moved, intercepts - [5.0, -7.0, 9.0])
    assert [*again[0].ravel(), *again[1]] == pytest.approx([*weights.ravel(), *ends])
    assert len(design) > 2
    alone = declared("classes", "columns", intercept=False)
    assert centred(alone, coefficients, intercepts)[0] is coefficients


@pytest.mark.parametrize("projection", [None, MAP], ids=["whole", "projected"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("kind", KINDS)
def test_standard_errors_are_those_of_mapped_noise(kind, features, intercept, projection):
    """Of all directions of the noise, ±1 deviation along each row of a root of its covariance."""
    declaration = declared(kind, features, intercept=intercept)
    dimension = rows(features, intercept, projection)[1].shape[1]
    random = np.random.default_rng(3)
    root, model = random.normal(size=(dimension, dimension)), random.normal(size=dimension)
    signs = np.repeat([[1.0], [-1.0]], dimension, axis=0) * np.sqrt(dimension)
    models = model + signs * np.vstack([root, root])
    coefficients, intercepts = centred(declaration, *in_column_units(declaration, models, projection))
    errors = standard_errors(declaration, root, projection)
    assert errors["standard_errors"] == pytest.approx(coefficients.std(axis=0).tolist(), rel=1e-3)
    if intercept:
        assert errors["intercept_standard_error"] == pytest.approx(float(intercepts.std()), rel=1e-3)
    assert ("intercept_standard_error" in errors) == intercept


def test_standard_error_is_one_for_many_features_or_none():
    """Many features have one standard error and models without a known noise have none."""

    def of(length: int) -> dict[str, Any]:
        array = declare(label="y", features={"x": {"length": length, "norm": 1.0}}, intercept=False, **KINDS["binary"])
        return standard_errors(array, np.eye(length) * np.arange(length))

    assert len(of(MOST_LISTED)["standard_errors"]) == MOST_LISTED
    assert of(1000)["standard_errors"] == pytest.approx(np.sqrt(np.mean(np.arange(1000.0) ** 2)), rel=1e-3)
    assert standard_errors(declared("binary", "array", intercept=True), None) == {}


def test_regression_of_zero_predicts_the_middle():
    """A regression predicts the middle where the model is zero."""
    coefficients, intercepts = in_column_units(declared("real", "columns", intercept=False), np.zeros((1, 7)))
    assert not coefficients.any()
    assert intercepts.tolist() == [20.0]


def test_a_label_is_mapped_back_to_what_it_was():
    """The map of labels to packed rows, and the map of models to the label's units, are inverse."""
    values = np.array([-10.0, 0.0, 12.5, 50.0])
    packed = RealLabels(-10.0, 50.0).packed(values)
    declaration = declare(label="y", features={"x": {"length": 1, "norm": 1.0}}, intercept=False, **KINDS["real"])
    coefficients, intercepts = in_column_units(declaration, np.array([[1.0]]))
    assert coefficients[0, 0] * packed + intercepts[0] == pytest.approx(values)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_model_has_the_shape_of_its_kind(connection, schema, register, kind):
    label = "'a'::text" if kind == "classes" else "1"
    connection.execute(f"create table t as select array[1, 2, 3]::float8[] x, {label} y")
    name = register("t", **{"positive": None} | KINDS[kind])
    given = {"classes": ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], [1.0, 2.0, 3.0])}.get(
        kind, ([1.0, 2.0, 3.0], [0.5])
    )
    sql = "select coefficients, intercepts, intercept from dbdp.models_details where id = %s"
    expected = (*given, None if kind == "classes" else 0.5)
    assert connection.execute(sql, (stored(connection, name, *given),)).fetchone() == expected


MISSHAPEN = {
    "a coefficient less": ("binary", [1.0, 2.0], [0.0]),
    "a coefficient more": ("real", [1.0, 2.0, 3.0, 4.0], [0.0]),
    "no coefficients": ("binary", [], [0.0]),
    "two intercepts": ("binary", [1.0, 2.0, 3.0], [0.0, 1.0]),
    "no intercepts": ("real", [1.0, 2.0, 3.0], []),
    "one model in a row": ("binary", [[1.0, 2.0, 3.0]], [0.0]),
    "a class less": ("classes", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [0.0] * 2),
    "an intercept less": ("classes", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], [0.0] * 2),
    "one model for classes": ("classes", [1.0, 2.0, 3.0], [0.0]),
    "a null": ("binary", [1.0, None, 3.0], [0.0]),
    "a null intercept": ("binary", [1.0, 2.0, 3.0], [None]),
    "NaN": ("binary", [1.0, float("nan"), 3.0], [0.0]),
}


@pytest.mark.parametrize("case", MISSHAPEN)
def test_a_model_of_another_shape_is_refused(connection, schema, register, case):
    """Else predict would fail for every analyst, or guess."""
    kind, coefficients, intercepts = MISSHAPEN[case]
    label = "'a'::text" if kind == "classes" else "1"
    connection.execute(f"create table t as select array[1, 2, 3]::float8[] x, {label} y")
    name = register("t", **{"positive": None} | KINDS[kind])
    with pytest.raises(psycopg.Error, match=r"dbdp: (coefficients have the shape|a coefficient or an intercept is)"):
        stored(connection, name, coefficients, intercepts)
    sql = "select count(*) from dbdp.models_details where dataset = %s"
    assert connection.execute(sql, (name,)).fetchone() == (0,)
