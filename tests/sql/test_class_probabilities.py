"""Probabilities of several classes: those of NumPy, in every form that a row or an array has."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from released import stored
from scipy.special import expit, softmax
from scored import PARALLEL
from test_prediction_by_name import named

import dbdp
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.sql import _scorer as compiled
from dbdp.learning.rows.features import constant_of
from dbdp.registry.results import class_probabilities

Register = Callable[..., str]

CLASSES = ["b", "a", "it's"]
TABLE = """
create table {name} as
select round((i % 31 - 15) / 10.0, 1)::float8 as a, chr(65 + i % 4) as ward, i % 3 = 0 as old,
  array[i % 7, i % 5 - 2, i % 3]::float8[] as x, (array['b', 'a', 'it''s'])[i % 3 + 1] as y
from generate_series(1, 60) as i"""
FEATURES: dict[str, Any] = {"a": [-1.5, 1.5], "ward": ["A", "B", "C"], "old": ["true", "false"]}
ARRAY: dict[str, Any] = {"x": {"length": 3, "norm": 4}}
SOFTMAX, APART = {"algorithm": "preconditioned_gd", "loss": "logistic"}, {"algorithm": "bolt_on", "loss": "logistic"}
TUNED = {"algorithm": "tuning", "plans": [APART, SOFTMAX], "chosen": 1}
WEIGHTS = np.array([[1.0, -0.5, 0.25], [-2.0, 0.5, 3.0], [0.5, 0.75, -1.0]])
INTERCEPTS = np.array([0.5, -1.0, 0.125])
SHAPES = {
    "array of doubles": (ARRAY, "x"),
    "array of reals": (ARRAY, "x::float4[]"),
    "array of integers": (ARRAY, "x::int4[]"),
    "array of numerics": (ARRAY, "x::numeric[]"),
    "array as JSON": (ARRAY, "to_jsonb(x)"),
    "array as text": (ARRAY, "to_jsonb(x)::text"),
    "row": (FEATURES, "t"),
    "row as JSON": (FEATURES, "to_jsonb(t)"),
    "row as text": (FEATURES, "to_jsonb(t)::text"),
}


def of_features(
    connection: psycopg.Connection, register: Register, features: dict[str, Any], receipt: dict[str, Any]
) -> tuple[int, np.ndarray]:
    """Store a model of three classes on table `t`; return its number and its coefficients."""
    connection.execute(TABLE.format(name="t"))
    name = register("t", features=features, positive=None, classes=CLASSES)
    width = 3 if features is ARRAY else 6
    coefficients = np.random.default_rng(3).normal(size=(3, width)) * 3 if width > 3 else WEIGHTS
    return stored(connection, name, coefficients.tolist(), INTERCEPTS.tolist(), **receipt), coefficients


def decisions(connection: psycopg.Connection, features: dict[str, Any], coefficients: np.ndarray) -> np.ndarray:
    """Return the decisions divided by the norms of the encoded rows, by the words of the documentation."""
    rows = connection.execute("select a, ward, old, x from t order by ctid").fetchall()
    if features is ARRAY:
        encoded = np.array([row[3] for row in rows])
        norms = np.sqrt(np.sum((encoded / 4) ** 2, axis=1) + constant_of(3) ** 2)
        return (encoded @ coefficients.T + INTERCEPTS) / norms[:, None]
    places = [[ward == each for each in "ABC"] + [old, not old] for _, ward, old, _ in rows]
    numbers = np.array([row[0] for row in rows])[:, None]
    encoded = np.hstack([numbers, np.array(places, float)])
    norms = np.sqrt((numbers[:, 0] / 1.5) ** 2 + np.sum(places, axis=1) + 1)
    return (encoded @ coefficients.T + INTERCEPTS) / norms[:, None]


def expected(scores: np.ndarray, receipt: dict[str, Any]) -> np.ndarray:
    """Return the probabilities by their definition."""
    if receipt in (SOFTMAX, TUNED):
        return np.asarray(softmax(scores, axis=1))
    shares = expit(scores)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def predicted(connection: psycopg.Connection, model: int | str, argument: str, table: str = "t") -> np.ndarray:
    """Return what SQL predicts for all rows, shape (n, 3), in the order of CLASSES."""
    sql = f"select dbdp.predict_probabilities(%s, {argument}) from {table} as t order by ctid"
    rows = [value for (value,) in connection.execute(sql, (model,)).fetchall()]
    assert all(set(row) == set(CLASSES) for row in rows)
    return np.array([[row[name] for name in CLASSES] for row in rows], float)


@pytest.mark.parametrize("receipt", [SOFTMAX, APART, TUNED], ids=["softmax", "apart", "tuned"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_form_has_the_probabilities_of_numpy(connection, schema, register, shape, receipt):
    features, argument = SHAPES[shape]
    model, coefficients = of_features(connection, register, features, receipt)
    truth = expected(decisions(connection, features, coefficients), receipt)
    assert truth.std(axis=0).min() > 0.01
    for reference in (model, str(model), named(connection, schema, model)):
        for _ in range(2):  # before and after the session has a scorer
            found = predicted(connection, reference, argument)
            assert np.abs(found - truth).max() < 1e-9
            assert np.abs(found.sum(axis=1) - 1).max() < 1e-12
    sql = f"select dbdp.predict_class(%s, {argument}) from t order by ctid"
    assert [name for (name,) in connection.execute(sql, (model,))] == [CLASSES[k] for k in truth.argmax(axis=1)]


@pytest.mark.parametrize("shape", ["array of doubles", "array as JSON", "row", "row as JSON"])
def test_probabilities_are_null_if_the_class_is(connection, schema, register, shape):
    features, argument = SHAPES[shape]
    required = features if features is ARRAY else features | {"a": {"bounds": [-1.5, 1.5], "missing": "required"}}
    model, _ = of_features(connection, register, required, SOFTMAX)
    connection.execute("update t set a = null, x = null where ward = 'B'; update t set a = 'NaN' where ward = 'C'")
    connection.execute("update t set x = array[1, null, 3] where ward = 'C'")
    sql = f"select dbdp.predict_class({model}, {argument}), dbdp.predict_probabilities({model}, {argument}) from t"
    rows = connection.execute(sql).fetchall()
    assert all((name is None) == (probabilities is None) for name, probabilities in rows)
    assert sum(name is None for name, _ in rows) == 30


def test_parallel_workers_find_the_same_probabilities(connection, schema, register):
    model, _ = of_features(connection, register, FEATURES, SOFTMAX)
    connection.execute("create table big as select t.* from t, generate_series(1, 300); analyze big")
    sql = f"select dbdp.predict_probabilities({model}, w) as p, count(*) from big as w group by 1 order by 1"
    serial = connection.execute(sql).fetchall()
    connection.execute(PARALLEL)
    assert "Gather" in str(connection.execute(f"explain {sql}").fetchall())
    assert connection.execute(sql).fetchall() == serial
    assert len(serial) > 1


@pytest.mark.parametrize("receipt", [{"algorithm": "bolt_on", "loss": "huber_svm"}, {}], ids=["svm", "unknown"])
@pytest.mark.parametrize("argument", ["x", "to_jsonb(x)"])
def test_a_loss_without_probabilities_is_refused(connection, schema, register, receipt, argument):
    model, _ = of_features(connection, register, ARRAY, receipt)
    for reference in (model, str(model)):
        with pytest.raises(psycopg.Error) as error:
            connection.execute(f"select dbdp.predict_probabilities(%s, {argument}) from t", (reference,))
        assert error.value.diag.sqlstate == "DP001"
        assert error.value.diag.message_primary == (
            f"dbdp: the loss of model {model} is {receipt.get('loss', 'unknown')!r}, which gives no probabilities; "
            "call dbdp.predict_class, or train a model with loss => 'logistic'"
        )
    assert connection.execute(f"select dbdp.predict_class({model}, {argument}) from t").fetchone()[0] in CLASSES


def test_the_loss_of_a_tuning_is_that_of_the_chosen_candidate():
    plans = [{"loss": "logistic"}, {"loss": "huber_svm"}]
    exist = [class_probabilities.exist({"plans": plans, "chosen": chosen}) for chosen in (0, 1, None)]
    assert exist == [True, False, True]
    assert not class_probabilities.are_softmax({"algorithm": "tuning", "plans": plans, "chosen": 0})
    assert class_probabilities.are_softmax({"algorithm": "objective_perturbation", "classes": "softmax"})
    assert not class_probabilities.are_softmax({"algorithm": "objective_perturbation", "classes": 3})


@pytest.mark.parametrize("apart", [False, True])
def test_large_decisions_have_probabilities(apart):
    """No exponential overflows or leaves every class with 0."""
    for intercepts, result in {
        (800.0, 800.0, -800.0): [0.5, 0.5, 0.0],
        (-800.0, -801.0, -2000.0): [1 / (1 + np.exp(-1.0)), 1 / (1 + np.exp(1.0)), 0.0],
        (np.inf, 1.0, -np.inf): [1.0, 1 / (1 + np.exp(-1.0)), 0.0] if apart else [1.0, 0.0, 0.0],
    }.items():
        scorers = [compiled.RecordScorer([], intercept) for intercept in intercepts]
        form = compiled.ProbabilitiesScorer(scorers, CLASSES, apart)
        one = compiled.Scorers()
        one.add(1, 0, form)
        found = json.loads(one.probabilities(1, 0, b"\0\0\0\0"))
        assert list(found) == CLASSES
        assert list(found.values()) == pytest.approx(np.divide(result, np.sum(result)), abs=1e-12)
    with pytest.raises(ValueError, match="2 scorers do not fit 3 classes"):
        compiled.ProbabilitiesScorer(scorers[:2], CLASSES, apart)
    with pytest.raises(TypeError, match="compiled scorer"):
        compiled.ProbabilitiesScorer([print] * 3, CLASSES, apart)


TRAINED = {
    "columns together": (FEATURES, {"algorithm": "preconditioned_gd"}),
    "columns apart": (FEATURES, {"algorithm": "bolt_on"}),
    "array together": (ARRAY, {"algorithm": "preconditioned_gd"}),
    "array by objective_perturbation": (ARRAY, {"algorithm": "objective_perturbation"}),
    "network on columns": (FEATURES, None),
    "network on an array": (ARRAY, None),
}


@pytest.mark.parametrize("trained", TRAINED)
def test_estimators_have_the_probabilities_of_sql(connection, database: Database, schema, register, trained):
    features, options = TRAINED[trained]
    connection.execute(TABLE.format(name="t"))
    name = register("t", features=features, positive=None, classes=CLASSES)
    kind = dbdp.LogisticRegression if options else dbdp.MLPClassifier
    model = kind(epsilon=50, delta=1e-6, progress=False, database=database, **(options or {})).fit(name)
    rows = connection.execute("select a, ward, old, x from t order by ctid").fetchall()
    given: Any = np.array([row[3] for row in rows])
    if features is not ARRAY:
        given = {"a": [row[0] for row in rows], "ward": [row[1] for row in rows], "old": [row[2] for row in rows]}
    argument = "x" if features is ARRAY else "t"
    found = predicted(connection, model.model_id_, argument)[:, np.argsort(CLASSES)]
    assert np.abs(found - model.predict_proba(given)).max() < 1e-9
    assert found.std() > 1e-4
    assert model.classes_.tolist() == sorted(CLASSES)
    with pytest.raises(psycopg.Error, match=r"call dbdp\.predict_class or dbdp\.predict_probabilities"):
        connection.execute(f"select dbdp.predict_probability(%s, {argument}) from t", (model.model_id_,))


@pytest.mark.parametrize("receipt", [SOFTMAX, APART, {"loss": "huber_svm"}], ids=["softmax", "apart", "svm"])
def test_clients_show_the_probability_of_the_predicted_class(
    connection, database: Database, schema, register, server_url, receipt
):
    model, coefficients = of_features(connection, register, FEATURES, receipt)
    shown = database.predictions(model, f"{schema}.t", most=60)
    if receipt.get("algorithm") is None:
        assert shown.probabilities is None
        return
    truth = expected(decisions(connection, FEATURES, coefficients), receipt)
    assert shown.answers == [CLASSES[k] for k in truth.argmax(axis=1)]
    assert shown.probabilities == pytest.approx(truth.max(axis=1).tolist(), abs=1e-9)


@pytest.mark.parametrize("options", ["", ", algorithm => 'bolt_on'", ", algorithm => 'dp_sgd', network => 'mlp:2'"])
def test_a_group_without_rows_has_equal_probabilities(connection, schema, register, options):
    """Its receipt has the loss, and a linear model the same decision for every class."""
    connection.execute(TABLE.format(name="t"))
    name = register("t", features=ARRAY, positive=None, classes=CLASSES, public_columns=["ward"])
    sql = f"select model from dbdp.dp_train_groups(%s, 'ward', array['A', 'Z'], 1, 1e-6{options})"
    known, empty = (model for (model,) in connection.execute(sql, (name,)).fetchall())
    assert predicted(connection, known, "x").std() > 0
    found = predicted(connection, empty, "x")
    assert found.shape == (60, 3)
    assert "network" in options or np.abs(found - 1 / 3).max() < 1e-15
