"""Released models as estimators and as scikit-learn's own pipelines predict what the server does."""

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import psycopg
import pytest
from click.testing import CliRunner
from released import stored
from sklearn.base import clone
from sklearn.pipeline import Pipeline

import dbdp
from dbdp.interfaces.cli.main import app

TABLE = """
create table t as
select (array[null, 'NaN', 'Infinity', '-Infinity', -1e300, -7, -1, 0, 1, 1.25, 2.5, 3.999999, 4, 11, 1e300])
    [1 + i % 15]::float8 as a,
  (i % 101 - 50)::float8 as b, (i % 2)::int2 as flag, (array['A', 'B', 'it''s', null, 'no', ''])[1 + i % 6] as ward,
  (array['u', 'v', null])[1 + i % 3] as other, {label} as y
from generate_series(0, 299) as i"""
PLAIN: dict[str, Any] = {"a": [-1, 4], "b": [-50, 50], "flag": [0, 1], "ward": ["A", "B", "it's"], "other": ["u", "v"]}
KEPT = {"missing": "indicator"}
DECLARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # features, and entries of the receipt
    "lines": (PLAIN, {}),
    "bins": (PLAIN | {"a": {"bounds": [-1, 4], "bins": 5}, "b": {"bounds": [-50, 50], "bins": 2}}, {}),
    "a scale": (
        PLAIN
        | {"a": {"bounds": [-1e6, 1e7], "scale": "asinh"}, "b": {"bounds": [-50, 50], "scale": "asinh", "bins": 4}},
        {},
    ),
    "curves": (PLAIN | {"a": {"bounds": [-1e6, 1e7], "scale": "asinh"}}, {"knots": 8}),
    "null is a coordinate": (
        PLAIN
        | {"a": {"bounds": [-1, 4]} | KEPT, "b": {"bounds": [-50, 50], "bins": 3} | KEPT}
        | {"ward": {"categories": ["A", "B"], "missing": "category"}},
        {},
    ),
    "null is a number": (PLAIN | {"a": {"bounds": [-1, 4], "bins": 5, "missing": 2}}, {}),
    "pairs": (PLAIN, {"pairs": "a*b,a*ward,ward*other", "pair_cells": 30}),
}
THREE = {"positive": None, "classes": ["1", "0", "it's"]}
NUMBER = {"positive": None, "label_bounds": [-3, 5]}
LABELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # values, registration, entries of the receipt
    "two classes": ("i % 2", {}, {"loss": "logistic"}),
    "two by margins": ("i % 2", {}, {"loss": "huber_svm"}),
    "softmax": ("(array['0', '1', 'it''s'])[1 + i % 3]", THREE, {"loss": "logistic", "classes": "softmax"}),
    "one against the rest": ("(array['0', '1', 'it''s'])[1 + i % 3]", THREE, {"loss": "logistic"}),
    "a number": ("i % 9", NUMBER, {"loss": "squared"}),
    "a number by Huber": ("i % 9", NUMBER, {"loss": "huber_regression"}),
}
KINDS = {"two classes": dbdp.LogisticRegression, "two by margins": dbdp.LinearSVC, "a number": dbdp.Ridge}
KINDS |= {"softmax": dbdp.LogisticRegression, "one against the rest": dbdp.LogisticRegression}
KINDS |= {"a number by Huber": dbdp.HuberRegressor}


def drawn(connection: psycopg.Connection, name: str, outputs: int, receipt: dict[str, Any]) -> int:
    """Store a model with random numbers, as many as a refusal asks for."""
    with pytest.raises(psycopg.Error) as refused, connection.transaction():
        stored(connection, name, [0.0], [0.0], **receipt)
    width = int(re.search(r"needs \((?:3, )?(\d+),?\)", str(refused.value))[1])
    random = np.random.default_rng()
    coefficients = random.normal(size=(outputs, width) if outputs > 1 else width)
    return stored(connection, name, coefficients.tolist(), random.normal(size=outputs).tolist(), **receipt)


def answers(connection: psycopg.Connection, label: str, model: int, row: str = "t") -> tuple[np.ndarray, np.ndarray]:
    """Return what the server predicts of each row: its last answer, and numbers of each."""
    kind = LABELS[label][1]
    functions = ("predict", "predict_probability") if not kind else ("predict_class", "predict_probabilities")
    functions = ("predict_value", "predict_value") if kind is NUMBER else functions
    calls = [f"dbdp.{each}({model}, {row})" for each in functions]
    rows = connection.execute(f"select {', '.join(calls)} from t order by ctid").fetchall()
    found = [each[1] for each in rows]
    numbers = [[each[name] for name in sorted(each)] if isinstance(each, dict) else each for each in found]
    return np.array([each[0] for each in rows]), np.array(numbers)


def compare(predictor: Any, X: Any, expected: tuple[np.ndarray, np.ndarray]) -> None:
    """Check the answers of an estimator, or of a pipeline."""
    answer, numbers = expected
    if answer.dtype == float:
        np.testing.assert_allclose(predictor.predict(X), answer, rtol=1e-12, atol=1e-12)
        return
    assert predictor.predict(X).tolist() == answer.tolist()
    if hasattr(predictor, "predict_proba"):
        found = predictor.predict_proba(X)
        np.testing.assert_allclose(found if numbers.ndim > 1 else found[:, 1], numbers, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("case", DECLARED)
def test_a_loaded_model_predicts_what_the_server_does(connection, database, register, case, label):
    features, receipt = DECLARED[case]
    values, kind, of_label = LABELS[label]
    connection.execute(TABLE.format(label=values))
    name = register("t", features=json.dumps(features), **kind)
    model = drawn(connection, name, 3 if "classes" in kind else 1, receipt | of_label)
    expected = answers(connection, label, model)
    rows = connection.execute("select a, b, flag, ward, other from t order by ctid").fetchall()
    frame = pandas.DataFrame(rows, columns=["a", "b", "flag", "ward", "other"])
    loaded = database.load(model)
    assert type(loaded) is KINDS[label]
    for estimator in (loaded, pickle.loads(pickle.dumps(loaded))):
        compare(estimator, frame[["other", "ward", "flag", "b", "a"]], expected)
        compare(estimator, rows, expected)
    if case == "pairs" or label == "one against the rest":
        with pytest.raises(ValueError, match="pairs of columns" if case == "pairs" else "each class against the rest"):
            loaded.to_sklearn()
    else:
        compare(loaded.to_sklearn(), frame[["other", "ward", "flag", "b", "a"]], expected)


@pytest.mark.parametrize("label", LABELS)
def test_a_loaded_model_of_an_array_predicts_the_same(connection, database, register, label):
    values, kind, of_label = LABELS[label]
    connection.execute(
        f"create table t as select array[i, 9 - i, i * i]::float8[] as x, {values} as y from generate_series(-9, 9) i"
    )
    name = register("t", features={"x": {"length": 3, "norm": 4}}, **kind)
    model = drawn(connection, name, 3 if "classes" in kind else 1, of_label)
    expected = answers(connection, label, model, "x")
    rows = [x for (x,) in connection.execute("select x from t order by ctid")]
    loaded = database.load(model)
    compare(loaded, rows, expected)
    if label != "one against the rest":
        compare(loaded.to_sklearn(), rows, expected)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("algorithm", ["preconditioned_gd", "bolt_on"])
@pytest.mark.parametrize("label", ["two classes", "softmax", "a number"])
def test_a_trained_model_predicts_what_the_server_does(connection, database, register, label, algorithm, intercept):
    connection.execute(TABLE.format(label=LABELS[label][0]))
    name = register("t", features=json.dumps(PLAIN), intercept=intercept, **LABELS[label][1])
    training = "select model from dbdp.dp_train(%s, epsilon => 9, delta => 1e-6, algorithm => %s)"
    model = connection.execute(training, (name, algorithm)).fetchone()[0]
    expected = answers(connection, label, model)
    rows = connection.execute("select a, b, flag, ward, other from t order by ctid").fetchall()
    loaded = database.load(model)
    compare(loaded, rows, expected)
    assert (loaded.epsilon, loaded.delta, loaded.model_id_) == (9, 1e-6, model)
    assert loaded.receipt_ == database.receipt(model)
    if label != "softmax" or algorithm == "preconditioned_gd":
        frame = pandas.DataFrame(rows, columns=["a", "b", "flag", "ward", "other"])
        compare(loaded.to_sklearn(), frame, expected)


def test_a_network_is_loaded_and_has_no_pipeline(connection, database, dataset):
    model = connection.execute(
        "select model from dbdp.dp_train(%s, epsilon => 1, delta => 1e-6, network => 'mlp:2,3')", (dataset,)
    ).fetchone()[0]
    loaded = database.load(model)
    assert isinstance(loaded, dbdp.MLPClassifier) and loaded.hidden_layer_sizes == (2, 3)
    rows = connection.execute("select x, dbdp.predict_probability(%s, x) from t", (model,)).fetchall()
    found = pickle.loads(pickle.dumps(loaded)).predict_proba([x for x, _ in rows])[:, 1]
    np.testing.assert_allclose(found, [expected for _, expected in rows], rtol=1e-6)
    with pytest.raises(ValueError, match="the model is a network, which scikit-learn's own classes cannot express"):
        loaded.to_sklearn()


def test_the_privilege_to_predict_is_enough(connection, database, dataset, make_role):
    """And without it a model does not exist."""
    model = stored(connection, dataset, [1.0, 2.0, 3.0], [0.5], loss="logistic")
    role = make_role("predictor", "dbdp_predictor")
    connection.execute(f"set session authorization {role}")
    with pytest.raises(ValueError, match=f"model '{model}' does not exist"):
        dbdp.load(model, connection)
    connection.execute("reset session authorization")
    database.grant_prediction(model, role)
    connection.execute(f"set session authorization {role}")
    loaded = dbdp.load(model, connection)
    connection.execute("reset session authorization")
    assert loaded.coef_.tolist() == [[1, 2, 3]] and loaded.classes_.tolist() == [False, True]
    assert type(clone(loaded)) is dbdp.LogisticRegression and dbdp.load(model, database).model_id_ == model


def test_a_model_that_no_estimator_is_of_is_refused(connection, database, dataset):
    model = stored(connection, dataset, [1.0, 2.0, 3.0], [0.5])
    with pytest.raises(ValueError, match="'unknown', which no estimator has; see"):
        database.load(model)
    summary = connection.execute("select summary from dbdp.dp_summarize(%s, 1, 1e-6)", (dataset,)).fetchone()[0]
    with pytest.raises(ValueError, match=f"model '{summary}' does not exist"):
        database.load(summary)


WITHOUT_DBDP = """
import sys
sys.modules["dbdp"] = None  # as if it was not installed
import pickle, pandas
pipeline = pickle.load(open(sys.argv[1], "rb"))
print(pipeline.predict_proba(pandas.DataFrame({"b": [3.0], "a": [1.5], "ward": ["B"]}))[0, 1])
"""


def test_a_file_of_the_command_predicts_without_dbdp(connection, database, register, server_url, tmp_path):
    connection.execute(TABLE.format(label="i % 2"))
    features = {"a": {"bounds": [-1, 4], "bins": 5}, "b": {"bounds": [-50, 50], "scale": "asinh"}, "ward": ["A", "B"]}
    model = drawn(connection, register("t", features=json.dumps(features)), 1, {"loss": "logistic"})
    file = str(tmp_path / "model.pickle")
    shown = CliRunner().invoke(app, ["export-sklearn", str(model), file, "--json", "--url", server_url])
    assert shown.exit_code == 0 and json.loads(shown.stdout)["file"] == file
    assert isinstance(pickle.loads(Path(file).read_bytes()), Pipeline)
    run = subprocess.run([sys.executable, "-c", WITHOUT_DBDP, file], capture_output=True, check=True, text=True)
    frame = pandas.DataFrame({"a": [1.5], "b": [3.0], "ward": ["B"]})
    assert float(run.stdout) == pytest.approx(database.load(model).predict_proba(frame)[0, 1], rel=1e-12)


def test_a_file_that_cannot_be_written_is_refused_in_words(connection, dataset, server_url, tmp_path):
    model = stored(connection, dataset, [1.0, 2.0, 3.0], [0.5], loss="logistic")
    missing = str(tmp_path / "missing" / "model.pickle")
    shown = CliRunner().invoke(app, ["export-sklearn", str(model), missing, "--url", server_url])
    assert str(shown.exception).endswith("cannot be written (No such file or directory); name another file")
