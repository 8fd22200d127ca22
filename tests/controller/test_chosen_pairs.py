"""Pairs that a training chooses, in the database: predictions, receipts, shapes, neighbours, and refused requests."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from moved_releases import moved
from released import released

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect

ROWS = 4000
TABLE = f"""
create table t as
select j, a, b, c, f, ((a > .5) <> (b > 3))::int y, 10 * (a - .5) * (b - 3) z
from (select j, (j * 7919 % 1009) / 1009.0 a, (j * 104729 % 613) / 613.0 * 6 b, j % 2 f,
      (array['u', 'v', 'w', 'other'])[1 + j * 31 % 4] c from generate_series(1, {ROWS}) j) s;
update t set a = null where j = 5; update t set c = null where j = 6"""
FEATURES: dict[str, Any] = {"a": [0, 1], "b": [0, 6], "c": ["u", "v", "w"], "f": [0, 1]}
OPTIONS: dict[str, Any] = {"features": FEATURES, "epsilon": 1e6, "delta": 0.1}
TRAIN = "dbdp.{}(%s, epsilon => 60, delta => 1e-6, algorithm => %s, pairs => 'chosen')"


@pytest.fixture
def dataset(connection, schema, register):
    """A label of 0 or 1 that two numbers decide together."""
    connection.execute(TABLE)
    return register("t", negative="0", **OPTIONS)


def trained(connection, dataset, trainer="dp_logreg", algorithm="private_splines"):
    """The number of a model, and its receipt."""
    (row,) = released(connection, TRAIN.format(trainer), (dataset, algorithm))
    return row["model"], row["receipt"]


@pytest.mark.parametrize("algorithm", ["private_splines", "auto"])
def test_a_model_of_chosen_pairs_predicts_alike_everywhere(connection, dataset, algorithm):
    """From rows, from jsonb, by the exported SQL, and by a score of its own rows."""
    model, receipt = trained(connection, dataset, algorithm=algorithm)
    assert "a*b" in receipt["pairs"].split(", ")
    assert receipt["chosen_pairs"] == receipt["pairs"].count("*")
    assert (receipt["pair_cells"], receipt["pair_bins"]) == (400, 16)
    right = "select avg((dbdp.predict(%s, t) = (y = 1))::int)::float8 from t"
    (accuracy,) = connection.execute(right, (model,)).fetchone()
    assert accuracy > 0.9
    assert receipt["evaluation"]["accuracy"]["value"] == pytest.approx(accuracy, abs=0.05)
    same = "select bool_and(dbdp.predict(%s, t) is not distinct from dbdp.predict(%s, to_jsonb(t))) from t"
    assert connection.execute(same, (model, model)).fetchone() == (True,)
    (counted,) = connection.execute("select dbdp.dp_score(%s, %s, 'accuracy', 1e5)", (model, dataset)).fetchone()
    assert counted["accuracy"] == pytest.approx(accuracy, abs=0.001)


def test_shapes_and_importance_list_the_chosen_pairs(connection, dataset):
    model, receipt = trained(connection, dataset)
    shapes = connection.execute("select distinct column_name from dbdp.shapes(%s)", (model,)).fetchall()
    assert {name for (name,) in shapes} >= {"a", "b", "c", "f", *receipt["pairs"].split(", ")}
    listed = connection.execute("select column_name from dbdp.importance(%s)", (model,)).fetchall()
    assert ("a*b",) in listed[:2]


def test_numbers_are_learned_by_chosen_pairs(connection, schema, register):
    connection.execute(TABLE)
    dataset = register("t", label="z", positive=None, label_bounds=[-15, 15], **OPTIONS)
    model, receipt = trained(connection, dataset, "dp_linreg")
    assert "a*b" in receipt["pairs"].split(", ")
    measured = "sqrt(avg((dbdp.predict_value(%s, t) - z::float8) ^ 2))::float8"
    sql = f"select {measured}, stddev(z)::float8 from t where a is not null"
    error, deviation = connection.execute(sql, (model,)).fetchone()
    assert error < 0.35 * deviation
    assert receipt["evaluation"]["rmse"]["value"] == pytest.approx(error, rel=0.2)


def test_a_training_without_pairs_says_none(connection, dataset):
    """With little signal it begins no choice, as the plan says before; the model is one of columns."""
    little = "dbdp.{}(%s, epsilon => .5, delta => 1e-6, algorithm => 'private_splines', pairs => 'chosen')"
    (plan_of,) = connection.execute(f"select {little.format('dp_explain')}", (dataset,)).fetchone()
    assert plan_of["pair_choice"].startswith("none: it needs")
    (row,) = released(connection, little.format("dp_logreg"), (dataset,))
    assert row["receipt"]["pairs"] == "none"
    assert connection.execute("select count(dbdp.predict(%s, t)) from t", (row["model"],)).fetchone()[0] == ROWS


REFUSED = [
    ("algorithm => 'preconditioned_gd'", "pairs = 'chosen' needs curves, and this training has none"),
    ("algorithm => 'auto', epsilon => .001", "pairs = 'chosen' needs curves"),
    ("algorithm => 'private_splines', pair_cells => 3", "pair_cells = 3 must be"),
    ("algorithm => 'private_splines', pair_cells => 1", "pair_cells = 1 must be"),
    ("algorithm => 'auto', loss => 'huber_svm'", "needs 'private_splines', and 'auto' takes '[a-z_]+' for these opt"),
    ("""settings => '{"evaluation_share": 0.6}'""", "does not support evaluation_share = 0.6, above 0.3"),
    ("algorithm => 'private_splines', radius => 2", "pairs = 'chosen' does not support radius = 2"),
    ("algorithm => 'private_splines', loss => 'huber_svm'", "does not support loss 'huber_svm'"),
]


@pytest.mark.parametrize(("more", "message"), REFUSED)
def test_a_choice_that_cannot_be_is_refused_before_the_charge(connection, dataset, spent, more, message):
    more = more if "epsilon" in more else f"epsilon => 10, {more}"
    for function in ("dp_explain", "dp_train"):
        with pytest.raises(psycopg.Error, match=message):
            connection.execute(f"select dbdp.{function}(%s, delta => 1e-6, pairs => 'chosen', {more})", (dataset,))
    assert spent(dataset) == (0, 0)


def test_several_trainings_refuse_a_choice(connection, dataset, spent):
    sql = "select dbdp.dp_tune(%s, '[{}, {}]', epsilon => 10, delta => 1e-6, pairs => 'chosen')"
    with pytest.raises(psycopg.Error, match="pairs = 'chosen' needs one training run"):
        connection.execute(sql, (dataset,))
    assert spent(dataset) == (0, 0)


@pytest.mark.parametrize(
    "label", [{"label": "y", "positive": "1"}, {"label": "z", "positive": None, "label_bounds": [-15, 15]}]
)
def test_a_replaced_record_moves_no_release_beyond_its_bound(connection, schema, register, monkeypatch, label):
    """By the aggregates of the server, if the releases before were the same; both runs make as many."""
    connection.execute(TABLE)
    name = register("t", **{**OPTIONS, **label})

    def changed() -> Iterator[str]:
        yield name
        connection.execute("update t set a = 1, b = 0, c = 'w', f = 1 - f, y = 1 - y, z = -z where j = 77")
        yield name

    request = Request(60.0, 1e-6, algorithm="private_splines", pairs="chosen")
    found, made = moved(connect(connection)._session, changed(), request, monkeypatch)
    assert len(found) == made.details["expected_passes"]
    assert all(distance <= noise.sensitivity for distance, noise in found)
    assert max(distance for distance, _ in found[4:24]) > 0.1  # the record is seen
