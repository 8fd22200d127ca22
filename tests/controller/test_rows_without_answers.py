"""Rows without an answer in the server: they are counted as wrong, with a capacity, of units and of arrays too."""

import numpy as np
import pytest
from nulls import required
from released import stored

from dbdp.controller.packed_rows import packed_rows
from dbdp.controller.statistics.scorers import released_model, scorer_of
from dbdp.learning.counts.tallies import Confusion, ResidualsAndLabels
from dbdp.registry import datasets

ROWS, EXACT = 200, 1e4
FEATURES = required({"u": [-1, 1], "v": [0, 1]})
ARRAY = {"x": {"length": 2, "norm": 2}}
LABELS = {
    "binary": {"label": "y", "positive": "1", "negative": "-1"},
    "classes": {"label": "k", "positive": None, "classes": ["a", "b", "c"]},
    "real": {"label": "r", "positive": None, "label_bounds": [-3, 5]},
}
MODELS = {
    "binary": ([1.0, 0.0], [-0.01]),
    "classes": ([[-1.0, 0.0], [0.0, 2.0], [1.0, 0.0]], [0.2, 0.0, -0.1]),
    "real": ([2.0, 0.5], [0.9]),
}
PREDICTORS = {"binary": "predict_probability", "classes": "predict_class", "real": "predict_value"}


@pytest.fixture
def table(connection, schema):
    """Half of the rows have no u, some no label; v is NaN in two rows."""
    random = np.random.default_rng()
    connection.execute("create table t (id int, who int, u float8, v float8, y int, k text, r float8, x float8[])")
    with connection.cursor().copy("copy t from stdin") as copy:
        for number in range(ROWS):
            u, v = random.uniform(-1, 1), random.random()
            label = None if number % 10 == 3 else 1 if u + random.normal() / 2 > 0 else -1
            row = (None if number % 2 else u, "NaN" if number < 4 else v)
            vector = None if number % 4 == 1 else [u] if number % 4 == 3 else [u, v]
            text, real = (None, None) if label is None else ("abc"[random.integers(3)], 2 * u + 1 + random.normal())
            copy.write_row((number, number // 2, *row, label, text, real, vector))
    return "t"


@pytest.fixture
def with_model(connection, table, register):
    """Register the table with a label of some kind, and release a model for it."""

    def call(kind="binary", **given):
        options = {"epsilon": 1e6, "delta": 0.1, "features": FEATURES} | LABELS[kind] | given
        name = register(table, **options)
        return name, stored(connection, name, *MODELS[kind])

    return call


def answered(database, model, kind):
    """Which rows with a label the model has an answer for, as SQL predicts."""
    of_row = f"dbdp.{PREDICTORS[kind]}($1, t) is not null"
    sql = f"select {of_row} as a from {database.qualified_table('t')} as t where t.y is not null"
    return np.array([row["a"] for row in database.query(sql, model)])


def scores_of(database, model, name, kind):
    """Every form of a score of the kind, by name, with its coverage."""
    metrics = {"binary": ("accuracy", "confusion", "auc"), "classes": ("accuracy", "confusion", "auc")}
    found = {}
    for metric in metrics.get(kind, ("mean_absolute_error", "mean_squared_error", "rmse")):
        positive = "b" if (kind, metric) == ("classes", "auc") else None
        found[metric] = database.score(model, name, metric, epsilon=EXACT, positive=positive)
    if kind != "real":
        found["class_balance"] = database.class_balance(name, epsilon=EXACT)
    figures = database.evaluate(model, name, epsilon=EXACT)
    return found | {"evaluate": {row["figure"]: row["value"] for row in figures}}


@pytest.mark.parametrize(
    "given", [{}, {"capacity": 300}, {"unit": "who", "max_rows": 2}, {"unit": "who", "max_rows": 2, "capacity": 150}]
)
@pytest.mark.parametrize("kind", list(LABELS))
def test_every_score_has_the_coverage_of_the_predictions(database, with_model, kind, given):
    name, model = with_model(kind, **given)
    has_answer = answered(database, model, kind)
    found = scores_of(database, model, name, kind)
    assert {metric: each["coverage"] for metric, each in found.items()} == pytest.approx(
        dict.fromkeys(found, has_answer.mean()), abs=1e-3
    )
    assert 0.4 < has_answer.mean() < 0.6
    if kind == "binary":
        sql = "select (dbdp.predict_probability($1, t) > 0.5) = (y = 1) as a from {} as t where y is not null"
        right = [row["a"] or False for row in database.query(sql.format(database.qualified_table("t")), model)]
        for metric in ("accuracy", "confusion", "evaluate"):
            assert found[metric]["accuracy"] == pytest.approx(np.mean(right), abs=1e-3)


@pytest.mark.parametrize("given", [{}, {"capacity": 300}])
@pytest.mark.parametrize("kind", ["binary", "real"])
def test_arrays_of_another_length_have_no_answer(database, connection, with_model, kind, given):
    """An array that is null, of another length, or with a NaN; empty slots of a capacity are no rows."""
    name, model = with_model(kind, features=ARRAY, **given)
    connection.execute("update t set x = array[0.5, 'NaN'] where id in (0, 2)")
    sql = "select cardinality(x) = 2 and x[2] <> 'NaN' as a from {} where y is not null"
    has_answer = np.array([row["a"] or False for row in database.query(sql.format(database.qualified_table("t")))])
    for found in scores_of(database, model, name, kind).values():
        assert found["coverage"] == pytest.approx(has_answer.mean(), abs=1e-3)
    assert 0.4 < has_answer.mean() < 0.6


@pytest.mark.parametrize("kind", list(LABELS))
def test_a_declaration_that_keeps_rows_has_no_count_of_them(database, with_model, kind):
    name, model = with_model(kind, features={"u": [-1, 1], "v": [0, 1]})
    found = scores_of(database, model, name, kind)
    assert {each["coverage"] for each in found.values()} == {1.0}
    assert answered(database, model, kind).all()


REPLACED = {
    "right": (0.9, 0.5, 1, "c", 5.0),
    "wrong": (0.9, 0.5, -1, "a", -3.0),
    "no answer": (None, 0.5, 1, "c", 5.0),
    "no answer either": (0.9, None, -1, "a", -3.0),
    "no label": (0.9, 0.5, None, None, None),
    "nothing": (None, None, None, None, None),
    "an infinity": (np.inf, 0.5, 1, "c", np.inf),
}


@pytest.mark.parametrize("given", [{}, {"capacity": 300}])
@pytest.mark.parametrize("kind", list(LABELS))
def test_a_row_that_loses_its_answer_moves_the_counts_as_covered(database, connection, with_model, kind, given):
    """Through packing and the aggregate; a row that was right attains it."""
    name, model = with_model(kind, **given)
    session = database._session
    dataset = datasets.load(session, name)
    scorer = scorer_of(model, released_model(session, model), dataset, 1.0)
    tally, results = (ResidualsAndLabels(True) if kind == "real" else Confusion(True)), {}
    for label, row in REPLACED.items():
        connection.execute("update t set (u, v, y, k, r) = (%s, %s, %s, %s, %s) where id = 9", row)
        with packed_rows(session, dataset, scorer.layout(dataset.rows, marks=True)) as rows:
            rows.pack()
            results[label] = rows.tally(scorer.vectors, scorer.of(tally))
    metric = "rmse" if kind == "real" else "confusion"
    sensitivity = database.explain_score(name, metric, epsilon=1)["sensitivity"]
    moves = {
        pair: np.abs(results[pair[0]] - results[pair[1]]).sum() for pair in [(a, b) for a in results for b in results]
    }
    assert max(moves.values()) == pytest.approx(sensitivity, rel=0.01)
    # Of a number the residual's table loses a row that the labels' table keeps: 1 + 2 of 4.
    assert moves["right", "no answer"] == (sensitivity * 3 / 4 if kind == "real" else 2)
    assert moves["no answer", "no label"] == sensitivity / (4 if kind == "real" else 2)


def test_a_training_packs_such_rows_as_zero_rows(database, with_model):
    """Only a score marks them."""
    name, model = with_model()
    session = database._session
    dataset = datasets.load(session, name)
    scorer = scorer_of(model, released_model(session, model), dataset, 1.0)
    counts = []
    for marks in (False, True):
        with packed_rows(session, dataset, scorer.layout(dataset.rows, marks=marks)) as rows:
            rows.pack()
            counts.append(rows.label_counts(1).sum())
    assert 0 < counts[0] < counts[1]
