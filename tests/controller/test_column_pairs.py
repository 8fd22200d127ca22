"""Pairs of columns in the database: named, counted or chosen from public facts; what is refused costs nothing."""

import json
from typing import Any

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from released import released

import dbdp
from dbdp.interfaces.cli.main import app

ROWS = 2000
TABLE = f"""
create table t as
select j, (array['a', 'b', 'c', 'z'])[1 + j * 31 % 4] c, (j * 7919 % 1000) / 10.0 u, j % 2 b, j % 3 g,
  ((j * 7919 % 1000 < 500) <> (j % 2 = 0))::int y, j % 10 n
from generate_series(1, {ROWS}) j;
update t set u = null where j = 5; update t set c = null where j = 6"""
FEATURES: dict[str, Any] = {"u": [0, 100], "b": [0, 1], "c": ["a", "b", "c"]}
OPTIONS: dict[str, Any] = {"features": FEATURES, "negative": "0", "epsilon": 1e6, "delta": 0.1}
STRAIGHT = "algorithm => 'preconditioned_gd'"
TRAIN = f"dbdp.dp_logreg(%s, epsilon => %s, delta => 1e-6, pairs => %s, {STRAIGHT})"
EXPLAIN = f"select dbdp.dp_explain(%s, epsilon => %s, delta => 1e-6, pairs => %s, {STRAIGHT})"


def trained(connection, parameters):
    """The number of a model, and its receipt."""
    (row,) = released(connection, TRAIN, parameters)
    return row["model"], row["receipt"]


@pytest.fixture
def dataset(connection, schema, register):
    """A label that depends on a pair of columns and on no single one."""
    connection.execute(TABLE)
    return register("t", public_columns=["g"], **OPTIONS)


def accuracy(connection: psycopg.Connection, model: int | str) -> float:
    sql = "select avg((dbdp.predict(%s, t) = (y = 1))::int)::float8 from t where dbdp.predict(%s, t) is not null"
    return connection.execute(sql, (model, model)).fetchone()[0]


def test_a_pair_learns_what_no_single_column_says(connection, dataset):
    plain, receipt = trained(connection, (dataset, 20, "none"))
    assert receipt["features"] == 6
    assert accuracy(connection, plain) < 0.7
    crossed, receipt = trained(connection, (dataset, 20, "u*b"))
    assert accuracy(connection, crossed) > 0.9
    assert (receipt["features"], receipt["pairs"], receipt["pair_cells"]) == (6 + 16, "u*b", 64)
    assert receipt["pair_weight"] == 1


def test_private_splines_learn_a_pair_too(connection, dataset):
    """The model predicts alike from rows and from jsonb; without the pair it says no more than its columns."""
    splines = TRAIN.replace(STRAIGHT, "algorithm => 'private_splines'")
    plain, model = (released(connection, splines, (dataset, 20, each))[0] for each in ("none", "u*b"))
    plain, model, receipt = plain["model"], model["model"], model["receipt"]
    assert (receipt["knots"], receipt["pairs"], receipt["features"]) == (8, "u*b", 8 + 1 + 3 + 1 + 16)
    assert accuracy(connection, model) > 0.85
    assert accuracy(connection, plain) < 0.7
    same = "select bool_and(dbdp.predict(%s, t) is not distinct from dbdp.predict(%s, to_jsonb(t))) from t"
    assert connection.execute(same, (model, model)).fetchone() == (True,)
    weights = dict(connection.execute("select feature, coefficient from dbdp.weights(%s)", (model,)).fetchall())
    assert abs(sum(weight for name, weight in weights.items() if "×" in name)) < 1e-9


def test_arrays_names_scores_and_weights_have_the_same_cells(connection, dataset):
    more = f"pairs => 'u*b, c * u', pair_cells => 20, name => 'crossed', {STRAIGHT}"
    sql = f"select model from dbdp.dp_logreg(%s, epsilon => 20, delta => 1e-6, {more})"
    (model,) = connection.execute(sql, (dataset,)).fetchone()
    same = "select bool_and(dbdp.predict(%s, t) is not distinct from dbdp.predict(%s, {})) from t"
    assert connection.execute(same.format("to_jsonb(t)"), (model, model)).fetchone() == (True,)
    assert connection.execute(same.format("t"), (model, "crossed")).fetchone() == (True,)
    assert connection.execute("select count(dbdp.predict(%s, t)) from t", (model,)).fetchone() == (ROWS,)
    (matrix,) = connection.execute(
        "select dbdp.dp_score(%s, %s, 'confusion', 1e5) -> 'matrix'", (model, dataset)
    ).fetchone()
    counted = np.zeros((2, 2), int)
    for y, predicted in connection.execute("select y, dbdp.predict(%s, t) from t", (model,)).fetchall():
        if predicted is not None:
            counted[y, int(predicted)] += 1
    assert matrix == counted.tolist()
    weights = dict(connection.execute("select feature, coefficient from dbdp.weights(%s)", (model,)).fetchall())
    assert {"u=[50,62.5) × b=[0,0.5)", "c=a × u=[0,16.6667)"} <= set(weights)
    assert len(weights) == 6 + 16 + 18
    assert abs(sum(weight for name, weight in weights.items() if name.startswith("u=") and "×" in name)) < 1e-9


@pytest.mark.parametrize(("epsilon", "chosen"), [(0.01, 0), (50.0, 3)])
def test_auto_decides_by_public_facts(connection, dataset, epsilon, chosen):
    (plan,) = connection.execute(EXPLAIN, (dataset, epsilon, "auto")).fetchone()
    assert plan["pairs"].count("*") == chosen
    assert plan["features"] == 6 + (0 if not chosen else 16 + 6 + 18)
    curved = EXPLAIN.replace(STRAIGHT, "algorithm => 'auto'")
    assert connection.execute(curved, (dataset, 50, "auto")).fetchone()[0]["pairs"] == "none"
    connection.execute("update t set u = 50, b = 1, c = 'a'")
    assert connection.execute(EXPLAIN, (dataset, epsilon, "auto")).fetchone()[0]["pairs"] == plan["pairs"]


def test_auto_has_no_pairs_for_algorithms_that_were_not_measured(connection, dataset):
    for more in ("algorithm => 'bolt_on'", "algorithm => 'dp_sgd'", "projection_dimension => 3, projection_seed => 1"):
        sql = f"select dbdp.dp_explain(%s, epsilon => 50, delta => 1e-6, pairs => 'auto', {more})"
        assert connection.execute(sql, (dataset,)).fetchone()[0]["pairs"] == "none"


def test_a_number_is_of_the_pairs_with_the_fewest_cells(connection, dataset):
    assert connection.execute(EXPLAIN, (dataset, 1, "1")).fetchone()[0]["pairs"] == "b*c"
    assert connection.execute(EXPLAIN, (dataset, 1, "0")).fetchone()[0]["pairs"] == "none"


def test_without_the_option_nothing_changes(connection, dataset):
    (plan,) = connection.execute(f"select dbdp.dp_explain(%s, 1, 1e-6, {STRAIGHT})", (dataset,)).fetchone()
    assert plan["features"] == 6
    assert "pairs" not in plan


REFUSED = [
    ("'u*v'", r"pairs names 'v'; columns of pairs are declared features"),
    ("'u*y'", r"pairs names 'y'"),
    ("'u*u'", "'u' with itself"),
    ("'u'", "give auto, chosen, none, how many, or columns"),
    ("'u*b, b*u'", r"lists b\*u twice"),
    ("'4'", "pairs = 4 must be .* between 0 and 3"),
    ("'u*b', pair_cells => 3", "pair_cells = 3 must be"),
    ("null, pair_cells => 12", "pair_cells = 12 needs pairs"),
    ("'u*b', network => 'mlp:4'", "network 'mlp:4' combines columns itself"),
]


@pytest.mark.parametrize(("pairs", "message"), REFUSED)
def test_what_is_no_pair_is_refused_before_the_charge(connection, dataset, spent, pairs, message):
    for function in ("dp_explain", "dp_train"):
        with pytest.raises(psycopg.Error, match=message) as error:
            connection.execute(f"select dbdp.{function}(%s, epsilon => 1, delta => 1e-6, pairs => {pairs})", (dataset,))
        assert str(error.value).startswith("dbdp: ")
    assert spent(dataset) == (0, 0)


def test_an_array_has_no_pairs(connection, table, register, spent):
    name = register(table)
    with pytest.raises(psycopg.Error, match="has an array, and pairs are of columns"):
        connection.execute(f"select {TRAIN}", (name, 1, "auto"))
    assert spent(name) == (0, 0)


def test_a_summary_has_no_cells_of_pairs(connection, dataset, spent):
    (number,) = connection.execute(
        "select summary from dbdp.dp_summarize(%s, epsilon => 1, delta => 1e-6)", (dataset,)
    ).fetchone()
    before = spent(dataset)
    with pytest.raises(psycopg.Error, match=f"summary {number} has no cells of pairs of columns"):
        connection.execute(
            "select dbdp.dp_logreg(%s, epsilon => 1, delta => 1e-6, pairs => 'u*b', summary => %s::int)",
            (dataset, number),
        )
    assert spent(dataset) == before


def test_a_receipt_with_pairs_that_are_none_is_refused(connection, dataset):
    sql = "select dbdp_internal.store_release(%s, array_fill(0.0::float8, array[5]), array[0.0::float8], %s)"
    connection.execute(sql, (dataset, "{}"))
    for named, message in (
        ({"pairs": "u*v"}, "pairs names 'v'"),
        ({"pairs": 7}, "must be a text"),
        ({"pairs": "u*b"}, "coefficients have the shape"),
        ({"pairs": "none", "pair_cells": "x"}, "pair_cells = 'x' must be"),
    ):
        with pytest.raises(psycopg.Error, match=message):
            connection.execute(sql, (dataset, json.dumps(named)))


MODELS = "select (r).model from dbdp.{}(%s, epsilon => 20, delta => 1e-6, pairs => %s, {}) as r"
SEVERAL = {
    "dp_tune": "candidates => '[{\"regularisation\": 0.01}, {\"regularisation\": 0.001}]', algorithm => 'bolt_on'",
    "dp_train_groups": "group_by => 'g', groups => array['0', '1', '9']",
}


@pytest.mark.parametrize("function", SEVERAL)
def test_several_trainings_refuse_auto_pairs(connection, dataset, spent, function):
    """Several trainings have the named pairs and auto is refused."""
    sql = MODELS.format(function, SEVERAL[function])
    with pytest.raises(psycopg.Error, match="'auto' needs one training run"):
        connection.execute(sql, (dataset, "auto"))
    assert spent(dataset) == (0, 0)
    models = [row[0] for row in connection.execute(sql, (dataset, "u*b")).fetchall()]
    for model in models:
        names, text = connection.execute(
            "select feature_names, declaration::text from dbdp.model where id = %s", (model,)
        ).fetchone()
        assert len(names) == 5 + 16
        assert json.loads(text)["pairs"] == [["u", "b"]]
        assert connection.execute("select count(dbdp.predict(%s, t)) from t", (model,)).fetchone() == (ROWS,)


def test_a_label_that_is_a_number_and_several_classes_have_pairs(connection, schema, register):
    connection.execute(TABLE)
    of_number = register("t", label="n", positive=None, label_bounds=[0, 9], features=FEATURES, epsilon=1e6, delta=0.1)
    sql = "select model from dbdp.dp_linreg(%s, epsilon => 20, delta => 1e-6, pairs => 'u*b')"
    (model,) = connection.execute(sql, (of_number,)).fetchone()
    (least, most) = connection.execute(
        "select min(v), max(v) from (select dbdp.predict_value(%s, t) v from t) as p", (model,)
    ).fetchone()
    assert 0 <= least < most <= 9
    connection.execute("create table s as select *, (array['p', 'q', 'r'])[1 + y + (b * y)] k from t")
    classes = register(
        "s", label="k", positive=None, classes=["p", "q", "r"], features=FEATURES, epsilon=1e6, delta=0.1
    )
    (model, _) = trained(connection, (classes, 50, "u*b"))
    right = "select avg((dbdp.predict_class(%s, t) = k)::int)::float8 from s as t where j not in (5, 6)"
    assert connection.execute(right, (model,)).fetchone()[0] > 0.85


def test_python_takes_lists_of_pairs_and_predicts_as_sql_does(connection, dataset):
    database = dbdp.connect(connection)
    estimator = dbdp.LogisticRegression(epsilon=20.0, delta=1e-6, pairs=[("u", "b")], database=database).fit(dataset)
    assert len(estimator.feature_names_) == 8 + 1 + 3 + 16
    rows = connection.execute(
        "select u, b, c, dbdp.predict(%s, t) from t where j > 6", (estimator.model_id_,)
    ).fetchall()
    predicted = estimator.predict([row[:3] for row in rows])
    assert predicted.tolist() == [row[3] for row in rows]
    assert len(set(predicted.tolist())) == 2
    assert estimator.receipt_["pairs"] == "u*b"


def test_the_command_line_trains_with_pairs(server_url, dataset):
    options = ["--epsilon", "20", "--delta", "1e-6", "--pairs", "u*b", "--pair-cells", "8", "--json"]
    done = CliRunner().invoke(app, ["train", dataset, *options, "--url", server_url])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["receipt"]["features"] == 8 + 1 + 3 + 1 + 8
