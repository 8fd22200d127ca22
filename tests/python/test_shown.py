"""What a notebook shows of models and receipts, and that every interface trains a regression by the same default."""

import json
from html.parser import HTMLParser
from typing import Any

import numpy as np
import psycopg
import pytest
from commands import run
from pairs import others_slow
from released import released

import dbdp
from dbdp.interfaces.python.client.database import Database
from dbdp.registry.results.html import ReceiptData
from dbdp.registry.results.models import ReleasedModel

RECEIPT = {
    "algorithm": "bolt_on",
    "epsilon": 1.0,
    "delta": 1e-6,
    "charge": 0.123456789,
    "order": 8.5,
    "dataset": "<b>d</b>",
}


class Cells(HTMLParser):
    """The texts of a page by tag, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def model(**changes: Any) -> ReleasedModel:
    values = {"id": 7, "dataset": "<script>d", "feature_names": ["<i>a", "b"], "coefficients": [0.25, -3.0]} | changes
    return ReleasedModel(**{"intercept": 1.5, "intercepts": [1.5], "receipt": RECEIPT} | values)


def test_a_receipt_is_a_dict_that_a_notebook_shows_short_first():
    receipt = model().receipt
    assert isinstance(receipt, dict)
    assert receipt == RECEIPT
    assert json.loads(json.dumps(receipt)) == RECEIPT
    first, folded = receipt._repr_html_().split("<details>")
    assert "algorithm" in first and "0.123457" in first
    assert "order" not in first and "8.5" in folded
    assert "details" not in ReceiptData(algorithm="nsgd")._repr_html_()


def test_a_temporary_dataset_has_no_name_for_a_person():
    shown = ReceiptData(dataset="dbdp_rows_0123456789abcdef", predicted_loss="about 0.1")._repr_html_()
    assert "(rows passed to fit)" in shown and "dbdp_rows" not in shown and "about 0.1" in shown
    assert "dbdp_rows_of_mine" in ReceiptData(dataset="dbdp_rows_of_mine")._repr_html_()


def test_names_of_users_are_escaped():
    shown = Cells(model()._repr_html_())
    assert set(shown.tags) <= {"p", "table", "caption", "tr", "th", "td", "details", "summary"}
    assert {"<i>a", "<b>d</b>", "model 7 of dataset <script>d"} <= set(shown.texts)


def test_the_largest_coefficients_of_one_linear_model_are_shown():
    texts = Cells(model()._repr_html_()).texts
    assert texts.index("b") < texts.index("<i>a")
    many = model(feature_names=[f"c{i}" for i in range(99)], coefficients=[float(i) for i in range(99)])
    texts = Cells(many._repr_html_()).texts
    assert "c98" in texts and "c79" in texts and "c78" not in texts
    for other in (
        model(intercept=None, coefficients=[[1.0, 2.0]] * 3),
        model(coefficients=None, network={"hidden": []}),
    ):
        assert "coefficients" not in other._repr_html_()


@pytest.fixture
def numbers(connection: psycopg.Connection, schema: str) -> str:
    """A dataset whose label is a number."""
    connection.execute(
        "create table numbers as select i / 2000.0 as a, i / 20.0 as y from generate_series(1, 2000) as i"
    )
    options = {"label": "y", "label_bounds": [0, 100], "features": {"a": [0, 1]}, "epsilon": 100, "delta": 1e-3}
    Database(connection).register_dataset(f"{schema}_numbers", "numbers", **options)
    return f"{schema}_numbers"


DEFAULTS = [(1e-6, "private_splines"), (0.0, "objective_perturbation")]  # at a delta


@pytest.mark.parametrize(("delta", "expected"), others_slow(DEFAULTS, DEFAULTS[0]))
def test_every_interface_trains_a_regression_by_the_same_default(
    database, connection, server_url, numbers, delta, expected
):
    call = "dbdp.dp_linreg(%s, epsilon => 1, delta => %s::float8)"
    command = ["train", numbers, "--epsilon", "1", "--delta", str(delta), "--loss", "huber_regression", "--json"]
    receipts = [
        released(connection, call, (numbers, delta))[0]["receipt"],
        database.train(numbers, dbdp.Request(1.0, delta, loss="huber_regression")).receipt,
        dbdp.HuberRegressor(epsilon=1, delta=delta, database=database, progress=False).fit(numbers).receipt_,
        json.loads(run(*command, "--url", server_url).stdout)["receipt"],
    ]
    assert {receipt["algorithm"] for receipt in receipts} == {expected}
    assert len({receipt["charge"] for receipt in receipts}) == 1


def test_ridge_has_the_good_default_and_warns_where_delta_is_0(database, numbers):
    ridge = dbdp.Ridge(epsilon=1, delta=1e-6, database=database, progress=False).fit(numbers)
    assert ridge.receipt_["algorithm"] == "private_splines"
    assert "warning" not in ridge.receipt_
    assert ridge.score(np.linspace(0, 1, 50)[:, None], np.linspace(0, 100, 50)) > 0.9
    with pytest.warns(UserWarning, match="the squared loss at delta = 0 has twice the noise"):
        dbdp.Ridge(epsilon=1, database=database, progress=False).fit(numbers)


@pytest.mark.parametrize("loss", ["huber_regression", "squared"])
def test_a_regression_of_classes_is_refused_before_the_charge(database, connection, server_url, numbers, schema, loss):
    connection.execute("create table classes as select i / 9.0 as a, i % 2 as y from generate_series(1, 9) as i")
    name = f"{schema}_classes"
    features = {"a": [0, 1]}
    database.register_dataset(name, "classes", label="y", positive="1", features=features, epsilon=9, delta=1e-3)
    told = f"loss '{loss}' is for numeric labels, but 'y' of dataset '{name}' has classes; use logistic or huber_svm"
    estimator = dbdp.Ridge if loss == "squared" else dbdp.HuberRegressor
    with pytest.raises(ValueError, match=told):
        estimator(epsilon=1, database=database).fit(name)
    with pytest.raises(psycopg.Error, match=told):
        connection.execute("select dbdp.dp_train(%s, epsilon => 1, loss => %s)", (name, loss))
    with pytest.raises(psycopg.Error, match="dp_linreg is for numeric labels"):
        connection.execute("select dbdp.dp_linreg(%s, epsilon => 1)", (name,))
    refused = run("train", name, "--epsilon", "1", "--loss", loss, "--url", server_url)
    assert refused.returncode == 1
    assert told in refused.stderr
    assert database.history(name) == []
