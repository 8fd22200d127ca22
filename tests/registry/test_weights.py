"""Weights and receipts of released models as tables: each number beside the feature that it belongs to."""

import json
from collections.abc import Callable
from itertools import product

import psycopg
import pytest
from acting import acting
from letters import TABLE
from released import released

from dbdp.interfaces.python.client.database import Database

FEATURES = {"a": [0, 1], "b": ["u", "v"]}


@pytest.fixture
def dataset(connection: psycopg.Connection, schema: str, register: Callable[..., str]) -> str:
    connection.execute(TABLE)
    return register("t", features=FEATURES)


def test_weights_are_the_coefficients_with_their_standard_errors(connection, database: Database, dataset):
    name = f"weights.{dataset}"
    [trained] = released(
        connection, "dbdp.dp_logreg(%s, 1, 1e-6, name => %s, algorithm => 'preconditioned_gd')", (dataset, name)
    )
    coefficients, intercept, receipt = (trained[each] for each in ("coefficients", "intercept", "receipt"))
    rows = database.weights(trained["model"])
    assert [row["feature"] for row in rows] == ["a", "b=u", "b=v", "(intercept)"]
    a, u, v = coefficients
    expected = [a, (u - v) / 2, (v - u) / 2, intercept + (u + v) / 2]
    assert [row["coefficient"] for row in rows] == pytest.approx(expected)
    assert [row["standard_error"] for row in rows] == [*receipt["standard_errors"], receipt["intercept_standard_error"]]
    assert {row["class"] for row in rows} == {None}
    assert rows == database.weights(name) == database.weights(f"{name}@1")
    assert database.receipt(name) == receipt
    shown = dict(connection.execute("select * from dbdp.receipt(%s::text)", (name,)).fetchall())
    assert {entry: json.loads(text) for entry, text in shown.items() if not isinstance(receipt[entry], str)} == {
        entry: value for entry, value in receipt.items() if not isinstance(value, str)
    }
    assert shown["algorithm"] == receipt["algorithm"]


def test_each_class_has_weights(connection, database: Database, schema, register):
    connection.execute(TABLE)
    name = register("t", features=FEATURES, positive=None, classes=["0", "1", "2"])
    numbers = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
    forged = json.dumps({"standard_errors": [1.0, "x", None], "intercept_standard_error": {}})
    sql = "select dbdp_internal.store_release(%s, %s::float8[], '{10, 11, 12}', %s) ->> 'id'"
    model = int(connection.execute(sql, (name, numbers, forged)).fetchone()[0])
    rows = database.weights(model)
    expected = [
        value for number, (a, u, v) in enumerate(numbers) for value in (a, u - v, v - u, 20.0 + 2 * number + u + v)
    ]
    expected = [value / (1 if place % 4 == 0 else 2) for place, value in enumerate(expected)]
    assert [row["coefficient"] for row in rows] == expected
    assert [row["class"] for row in rows] == [label for label in "012" for _ in range(4)]
    assert {row["standard_error"] for row in rows} == {None}  # of a client's receipt


def test_a_model_without_coefficients_has_no_weights(connection, dataset):
    sql = "select model from dbdp.dp_train(%s, 1, 1e-6, network => 'mlp:2', epochs => 1)"
    network = connection.execute(sql, (dataset,)).fetchone()[0]
    summary = connection.execute("select summary from dbdp.dp_summarize(%s, 1, 1e-6)", (dataset,)).fetchone()[0]
    for model, kind in ((network, "network"), (summary, "summary")):
        with pytest.raises(psycopg.Error, match=f"model {model} is a {kind}, and has no coefficients of features"):
            connection.execute("select * from dbdp.weights(%s)", (model,))
        assert connection.execute("select count(*) from dbdp.receipt(%s)", (model,)).fetchone()[0] > 5


def test_weights_of_a_closed_model_do_not_exist(connection, make_role, dataset):
    """Weights of a model that the role may not use do not exist."""
    sql = "select model from dbdp.dp_logreg(%s, 1, 1e-6, algorithm => 'preconditioned_gd')"
    model = connection.execute(sql, (dataset,)).fetchone()[0]
    reader = make_role("app", "dbdp_predictor")
    for call, reference in product(("weights", "receipt"), (model, 999999999)):
        with acting(connection, reader), pytest.raises(psycopg.Error, match=r"does not exist; see dbdp\.models"):
            connection.execute(f"select * from dbdp.{call}({reference})")
    connection.execute(f"select dbdp.grant_prediction({model}, '{reader}')")
    with acting(connection, reader):
        assert connection.execute(f"select count(*) from dbdp.weights({model})").fetchone() == (4,)
