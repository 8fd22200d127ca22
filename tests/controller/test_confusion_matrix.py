"""The confusion matrix in the server: charged before a row is read, the same rows as predict, and nothing exact."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from acting import acting
from click.testing import CliRunner
from pairs import pairwise
from released import stored

from dbdp.algorithms import Request
from dbdp.interfaces.cli.main import app
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.privacy.accounting.budget import CHARGE_UNITS
from dbdp.registry.declarations import declare
from dbdp.registry.results.column_units import in_column_units, in_packed_coordinates

Register = Callable[..., str]
MATRIX = "select dbdp.dp_score(%s, %s, 'confusion', %s)"
EXACT = 1e5  # with so much ε hardly a cell has noise
KINDS: dict[str, dict[str, Any]] = {
    "binary": {"label": "y", "positive": "1", "negative": "-1"},
    "other": {"label": "y", "positive": "1"},
    "classes": {"label": "k", "positive": None, "classes": ["a", "b", "c"]},
}
FEATURES: dict[str, dict[str, Any]] = {
    "array": {"x": {"length": 3, "norm": 1.5}},
    "columns": {"u": {"bounds": [-5, 20], "missing": "required"}, "v": [3.0, 3.5], "c": ["p", "q", "r"]},
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> str:
    """Rows with arrays and columns, some too long, some out of bounds, some with a null, some without a label."""
    random = np.random.default_rng()
    connection.execute("create table t (x float8[], u float8, v float4, c text, y int, k text)")
    with connection.cursor().copy("copy t from stdin") as copy:
        for number in range(400):
            x, u, v = random.normal(size=3) * 1.2, random.uniform(-9, 30), random.uniform(2.8, 3.6)
            if number < 30:
                x[0] = u = (np.nan, np.inf, -np.inf)[number % 3]
            array = "{" + ",".join(map(repr, x.tolist())) + "}" if number != 31 else None
            y, k = random.choice([-1, 1]) if number % 50 else 7, "abc"[random.integers(3)] if number % 8 else "d"
            copy.write_row(
                (array, u if number != 32 else None, v, "pqrs"[number % 4], int(y), k if number % 40 else None)
            )
    return "t"


@pytest.fixture
def dataset(table: str, register: Register) -> Callable[..., str]:
    """Register the table with a label and features of some kind."""

    def call(kind: str = "binary", features: str = "array", **given: Any) -> str:
        large = {"epsilon": 1e6, "delta": 0.1, "features": FEATURES[features]}
        return register(table, **large | KINDS[kind] | given)

    return call


def released(connection: psycopg.Connection, name: str) -> int:
    """Store a model of random coefficients, about as large for every feature."""
    declaration = declare(**declared(connection, name)).current
    models = np.random.default_rng().normal(size=(declaration.outputs, declaration.dimension))
    coefficients, intercepts = (each.tolist() for each in in_column_units(declaration, models))
    given = coefficients if declaration.kind == "classes" else coefficients[0]
    return stored(connection, name, given, intercepts)


def declared(connection: psycopg.Connection, name: str) -> dict[str, Any]:
    return connection.execute("select declaration from dbdp.datasets_details where name = %s", (name,)).fetchone()[0]


# --- what is counted ------------------------------------------------------------------------------------


def predicted(connection: psycopg.Connection, model: int, kind: str, features: str) -> np.ndarray:
    """The matrix by the SQL functions for predictions, over the rows whose features are all numbers."""
    interface, label = ("predict_class", "k") if kind == "classes" else ("predict", "y")
    row = "t.x" if features == "array" else "t"
    rows = connection.execute(f"select {label}, dbdp.{interface}(%s, {row}) from t", (model,)).fetchall()
    names = {"binary": [-1, 1], "classes": ["a", "b", "c"], "other": [-1, 1]}[kind]
    matrix = np.zeros((len(names),) * 2, np.int64)
    for true, chosen in rows:
        value = -1 if kind == "other" and true is not None and true != 1 else true
        if value in names and chosen is not None:
            matrix[names.index(value), names.index(chosen) if kind == "classes" else int(chosen)] += 1
    return matrix


def apart(found: dict[str, Any], expected: np.ndarray) -> int:
    """How many rows are in other cells; one may be, whose scores are equal up to the rounding to float32."""
    return int(np.abs(np.array(found["matrix"]) - expected).sum()) // 2


def ties(connection: psycopg.Connection, features: str) -> int:
    """Rows that are packed as zeros, at all lower bounds and of no category: without an intercept no class is ahead."""
    zeros = "select count(*) from t where u <= -5 and v <= 3 and c = 's'"
    return 0 if features == "array" else connection.execute(zeros).fetchone()[0]


@pairwise(kind=KINDS, features=FEATURES, intercept=[True, False])
def test_with_much_epsilon_the_matrix_is_that_of_the_predictions(connection, dataset, kind, features, intercept):
    """Rows without a label are in no cell, those that cannot be packed are wrong; longer ones count as predicted."""
    name = dataset(kind, features, intercept=intercept)
    model = released(connection, name)
    result = connection.execute(MATRIX, (model, name, EXACT)).fetchone()[0]
    expected = predicted(connection, model, kind, features)
    assert apart(result, expected) <= 1 + (0 if intercept else ties(connection, features))
    assert 250 < expected.sum() < 380
    assert np.count_nonzero(expected) > 1
    every = np.sum(result["matrix"]) + np.sum(result.get("unanswered", 0))
    assert result["accuracy"] == np.trace(result["matrix"]) / every
    assert result["coverage"] == np.sum(result["matrix"]) / every


def test_classes_are_named_in_the_order_of_the_matrix(connection, dataset):
    name = dataset("classes")
    result = connection.execute(MATRIX, (released(connection, name), name, 1.0)).fetchone()[0]
    assert result["classes"] == ["a", "b", "c"]
    assert np.shape(result["matrix"]) == (3, 3)
    assert len(result["precision"]) == len(result["recall"]) == 3


@pytest.mark.parametrize(("kind", "names"), [("binary", ["-1", "1"]), ("other", [None, "1"])])
def test_a_binary_label_has_its_negative_value_first(connection, dataset, kind, names):
    name = dataset(kind)
    assert connection.execute(MATRIX, (released(connection, name), name, 1.0)).fetchone()[0]["classes"] == names


def test_a_model_that_was_trained_is_evaluated_through_python(database, dataset):
    """With a projection too; the model's coefficients are those of the columns, whatever it was trained on."""
    name = dataset()
    for more in ({}, {"projection_dimension": 2, "projection_seed": 1}):
        model = database.train(name, Request(epsilon=EXACT, algorithm="bolt_on", batch_size=20, **more))
        result = database.confusion(model.id, name, epsilon=EXACT)
        assert apart(result, predicted(database.connection, model.id, "binary", "array")) <= 1
        assert result["receipt"]["model"] == model.id


def test_the_command_line_shows_the_matrix(connection, server_url, dataset):
    name = dataset("classes")
    model = released(connection, name)
    command = ["confusion", str(model), name, "--epsilon", str(EXACT), "--url", server_url]
    shown = CliRunner().invoke(app, [*command, "--json"])
    assert shown.exit_code == 0, shown.output
    result = json.loads(shown.output)
    assert apart(result, predicted(connection, model, "classes", "array")) <= 1
    table = CliRunner().invoke(app, command).output
    assert all(word in table for word in ("true class", "as b", "recall", "discrete_laplace"))


@pytest.mark.parametrize("projection", [None, RandomProjection(2, 3)], ids=["whole", "projected"])
def test_a_network_is_counted_as_it_predicts(database, dataset, projection):
    name = dataset("classes")
    more = {"projection_dimension": 2, "projection_seed": 3} if projection else {}
    request = Request(EXACT, 1e-3, algorithm="dp_sgd", network="mlp:4", batch_size=100, epochs=1, **more)
    model = database.train(name, request)
    result = database.confusion(model.id, name, epsilon=EXACT)
    assert apart(result, predicted(database.connection, model.id, "classes", "array")) <= 1


def test_a_model_is_scored_on_a_dataset_declared_alike(connection, dataset, register, spent):
    """A table of test rows: it is charged, and the one that was trained on is not."""
    trained = dataset("classes")
    model = released(connection, trained)
    connection.execute("create table held as select x, k as kind from t where k = 'a'")
    test = register("held", **{"features": FEATURES["array"], "epsilon": 1e6} | KINDS["classes"] | {"label": "kind"})
    result = connection.execute(MATRIX, (model, test, EXACT)).fetchone()[0]
    assert np.sum(result["matrix"][0]) > 0
    assert not np.any(result["matrix"][1:])
    assert spent(test)[0] == EXACT * CHARGE_UNITS
    assert spent(trained)[0] == 0


# --- what it costs --------------------------------------------------------------------------------------


def test_the_noise_is_fresh_each_time_and_has_the_stated_scale(connection, dataset):
    name = dataset()
    model = released(connection, name)
    sql = "select array_agg(dbdp.dp_score(%s, %s, 'confusion', 0.1)::jsonb -> 'matrix') from generate_series(1, 40)"
    result = np.array(connection.execute(sql, (model, name)).fetchone()[0], np.float64).reshape(40, -1)
    exact = np.array(connection.execute(MATRIX, (model, name, EXACT)).fetchone()[0]["matrix"]).ravel()
    mean = np.abs(result - exact).mean()  # of 160 numbers, about the scale of 20; its deviation is 20/√160 = 1.6
    assert len(np.unique(result)) > 50
    assert 20 / 2 < mean < 20 * 2


# --- what is refused ------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_before_the_charge(connection, dataset, register, spent):
    name = dataset()
    model = released(connection, name)
    connection.execute("create table other as select x, u, y::float8 as r, y, k from t")
    cases = {
        "classes": KINDS["classes"] | {"features": FEATURES["array"]},
        "features": KINDS["binary"] | {"features": {"x": {"length": 3, "norm": 9}}},
        "columns": KINDS["binary"] | {"features": {"u": [0, 1]}},
        "intercept": KINDS["binary"] | {"features": FEATURES["array"], "intercept": False},
        "is a number": {"label": "r", "positive": None, "label_bounds": [-1, 1], "features": FEATURES["array"]},
    }
    for word, given in cases.items():
        other = register("other", **{"epsilon": 10} | given)
        with pytest.raises(psycopg.Error, match=word if word != "classes" else "kind"):
            connection.execute(MATRIX, (model, other, 1.0))
        assert spent(other) == (0, 0)
        connection.execute("select dbdp.drop_dataset(%s)", (other,))
    with pytest.raises(psycopg.Error, match=r"model 987654321 does not exist; see dbdp\.models"):
        connection.execute(MATRIX, (987654321, name, 1.0))
    with pytest.raises(psycopg.Error, match="dataset 'nowhere' is not registered"):
        connection.execute(MATRIX, (model, "nowhere", 1.0))
    for epsilon in (0.0, -1.0, math.nan, None):
        with pytest.raises(psycopg.Error, match="dbdp: epsilon"):
            connection.execute(MATRIX, (model, name, epsilon))
    assert spent(name) == (0, 0)


def test_a_model_with_another_intercept_is_refused(connection, dataset):
    """Only an owner who stores a release by hand can make one."""
    name = dataset(intercept=False)
    model = stored(connection, name, [1, 2, 3], [0.5])
    with pytest.raises(psycopg.Error, match="declared without one; choose a dataset with an intercept"):
        connection.execute(MATRIX, (model, name, 1.0))


@pytest.mark.parametrize("value", ["'NaN'", "'infinity'", "'-infinity'"])
def test_a_model_without_numbers_raises_nothing(connection, dataset, value):
    name = dataset()
    model = released(connection, name)
    sql = f"update dbdp.model set coefficients[1] = {value}::float8 where id = %s"
    connection.execute(sql, (model,))
    result = connection.execute(MATRIX, (model, name, EXACT)).fetchone()[0]
    assert 250 < np.sum(result["matrix"]) + np.sum(result["unanswered"]) <= 400


# --- who may --------------------------------------------------------------------------------------------


FORBIDDEN = {
    "the exact count": "select dbdp_internal.tally(null::bytea, null::bytea, null)",
    "a transition": "select dbdp_internal.tally_transition(null, null, null, null)",
    "a termination": "select dbdp_internal.tally_terminate(null)",
}


def test_an_analyst_gets_the_noisy_matrix_and_no_exact_one(connection, dataset, analyst):
    name = dataset()
    model = released(connection, name)
    connection.execute("select dbdp.grant_training(%s, %s)", (name, analyst))
    connection.execute("select dbdp.grant_prediction(%s, %s)", (model, analyst))
    connection.execute(f"set session authorization {analyst}")
    assert np.shape(connection.execute(MATRIX, (model, name, 1.0)).fetchone()[0]["matrix"]) == (2, 2)
    for statement in FORBIDDEN.values():
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


def test_a_stranger_gets_nothing(connection, make_role, dataset):
    name = dataset()
    model = released(connection, name)
    with acting(connection, make_role("stranger")):
        for statement in (*FORBIDDEN.values(), f"select dbdp.dp_score({model}, '{name}', 'confusion', 1)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


# --- coordinates ----------------------------------------------------------------------------------------


@pairwise(features=FEATURES, intercept=[True, False], kind=["binary", "classes"])
def test_models_in_column_units_are_mapped_back(kind, features, intercept):
    given = {key: value for key, value in KINDS[kind].items() if value is not None}
    declaration = declare(features=FEATURES[features], intercept=intercept, **given)
    models = np.random.default_rng().normal(size=(declaration.outputs, declaration.dimension))
    back = in_packed_coordinates(declaration, *in_column_units(declaration, models))
    assert back.shape == models.shape
    assert np.abs(back - models).max() < 1e-12 * np.abs(models).max() * 100
