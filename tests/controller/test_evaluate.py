"""dbdp.evaluate: accuracy, share of the largest class and AUC of a classifier, for one charge."""

import json
import math
import re

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from pairs import others_slow
from scipy.stats import rankdata
from sklearn.metrics import f1_score, precision_score, recall_score
from test_scores_and_bounds import EXACT, FEATURES, MODELS, scores_of, table, with_model  # noqa: F401

from dbdp.algorithms.scores.evaluation import EvaluationPlan
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.database import Database
from dbdp.learning.counts.tallies import Confusion, ScoreBins, tally_from

BINARY = ["accuracy", "majority_share", "coverage", "auc", "precision", "recall", "f1"]


def of_rows(database: Database, schema: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the model for the rows of the table, and their classes."""
    rows = database.query(f"select u, v, y, k from {schema}.t")
    features = np.array([[row["u"], row["v"]] for row in rows])
    classes = [(row["y"] + 1) // 2 if kind == "binary" else "abc".index(row["k"]) for row in rows]
    return scores_of(kind, features), np.array(classes)


def test_binary_figures_are_exact_with_much_epsilon(database, schema, with_model):  # noqa: F811
    name, model = with_model()
    scores, classes = of_rows(database, schema, "binary")
    figures = {row["figure"]: row for row in database.evaluate(model, name, epsilon=EXACT, bins=1000)}
    ranks = rankdata(scores[:, 1])
    ones = classes.sum()
    auc = (ranks[classes == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(classes) - ones))
    assert figures["accuracy"]["value"] == (scores.argmax(axis=1) == classes).mean()
    assert figures["majority_share"]["value"] == pytest.approx(max(classes.mean(), 1 - classes.mean()))
    assert figures["auc"]["value"] == pytest.approx(auc, abs=0.01)
    assert [row["plus_minus"] for row in figures.values()] == [0.0] * 7


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
def test_f1_is_of_the_rows_from_the_threshold_on(database, schema, with_model, threshold):  # noqa: F811
    name, model = with_model()
    scores, classes = of_rows(database, schema, "binary")
    found = database.evaluate(model, name, epsilon=EXACT, bins=100, threshold=threshold)
    figures = {row["figure"]: row["value"] for row in found}
    predicted = 1 / (1 + np.exp(-scores[:, 1])) >= threshold
    exact = {
        "accuracy": (predicted == classes).mean(),
        "precision": precision_score(classes, predicted),
        "recall": recall_score(classes, predicted),
        "f1": f1_score(classes, predicted),
    }
    assert {key: figures[key] for key in exact} == pytest.approx(exact)


@pytest.mark.parametrize("kind", ["classes", "real"])
def test_only_two_classes_have_a_threshold(connection, with_model, spent, kind):  # noqa: F811
    name, model = with_model(kind)
    with pytest.raises(psycopg.Error, match=r"threshold = 0\.3 needs two classes, and the label .*; leave it out"):
        connection.execute("select * from dbdp.evaluate(%s, %s, 1, threshold => 0.3)", (model, name))
    assert spent(name) == (0, 0)


def test_of_several_classes_the_figures_are_those_of_the_matrix(database, schema, with_model):  # noqa: F811
    name, model = with_model("classes")
    scores, classes = of_rows(database, schema, "classes")
    figures = {row["figure"]: row["value"] for row in database.evaluate(model, name, epsilon=EXACT)}
    share = np.bincount(classes).max() / len(classes)
    assert figures == {"accuracy": (scores.argmax(axis=1) == classes).mean(), "majority_share": share, "coverage": 1.0}


def test_one_evaluation_is_one_charge_that_is_explained(database, connection, with_model, spent):  # noqa: F811
    name, model = with_model(mode="basic")
    planned = database.explain_score(name, "evaluation", epsilon=5, bins=20)
    figures = database.evaluate(model, name, epsilon=5)
    assert [row["figure"] for row in figures] == BINARY
    assert all(0 <= row["value"] <= 1 and (row["plus_minus"] > 0 or row["figure"] == "coverage") for row in figures)
    charges = connection.execute(
        "select algorithm, epsilon, outcome from dbdp.history_details where dataset = %s", (name,)
    )
    assert charges.fetchall() == [("evaluation", 5.0, "shown")]
    assert (planned["epsilon"], planned["cells"]) == (5.0, 40)
    assert spent(name)[0] == round(planned["charge"] * 1e9)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("dbdp.evaluate(999999, '{0}', 1)", "model 999999 does not exist"),
        ("dbdp.evaluate('nobody', '{0}', 1)", "model 'nobody' does not exist"),
        ("dbdp.evaluate({1}, '{0}', 1, bins => 21)", "bins = 21 must be even.*choose 22"),
        ("dbdp.evaluate({1}, '{0}', 1, bins => 0)", "bins = 0 must be a whole number between 2 and 1000"),
        (
            "dbdp.evaluate({1}, '{0}', 1, threshold => 0.33)",
            "threshold = 0.33 must lie between two of the 20.*choose 0.35",
        ),
        ("dbdp.evaluate({1}, '{0}', 1, threshold => 1)", "threshold = 1.0 must lie between two of the 20.*choose 0.95"),
        (
            "dbdp.evaluate({1}, '{0}', 1, threshold => 0.0001)",
            "threshold = 0.0001 must lie between two of the 20 bins; choose 0.05(?!, or)",
        ),
        ("dbdp.evaluate({1}, '{0}', 1, threshold => 'NaN')", "threshold = nan must be between 0 and 1"),
        ("dbdp.evaluate({1}, '{0}', null)", "epsilon is required, e.g. epsilon => 1"),
        ("dbdp.evaluate({1}, '{0}', 1e7)", "epsilon = 10000000.0 must be positive, from 1e-09"),
        ("dbdp.evaluate({1}, 'nope', 1)", "dataset 'nope' is not registered"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_the_charge(connection, with_model, spent, call, named):  # noqa: F811
    name, model = with_model()
    with pytest.raises(psycopg.Error, match=named):
        connection.execute(f"select * from {call.format(name, model)}")
    assert spent(name) == (0, 0)


def test_of_a_number_the_figures_are_rmse_and_r2(database, connection, with_model, spent):  # noqa: F811
    """With much ε; the length at which residuals are cut is in them, and one charge is explained."""
    name, model = with_model("real")
    planned = database.explain_score(name, "evaluation", epsilon=EXACT)
    figures = {row["figure"]: row for row in database.evaluate(model, name, epsilon=EXACT)}
    assert spent(name)[0] == round(planned["charge"] * 1e9)
    rows = database.query(f"select u, v, r from {database.qualified_table('t')}")
    coefficients, intercepts = MODELS["real"]
    predicted = np.clip(
        [coefficients[0] * row["u"] + coefficients[1] * row["v"] + intercepts[0] for row in rows], -3, 5
    )
    labels = np.array([row["r"] for row in rows])
    mean = np.square(predicted - labels).mean()
    assert list(figures) == ["rmse", "r2", "coverage", "residual_cut"]
    assert figures["rmse"]["value"] == pytest.approx(math.sqrt(mean), rel=1e-3)
    assert figures["r2"]["value"] == pytest.approx(1 - mean / labels.var(), abs=0.02)
    assert 0 < figures["rmse"]["plus_minus"] < 0.01
    assert figures["residual_cut"] == {"figure": "residual_cut", "value": 8.0, "plus_minus": 0.0}


def test_the_command_line_evaluates_and_lists_weights(with_model, server_url):  # noqa: F811
    name, model = with_model()
    done = CliRunner().invoke(app, ["evaluate", str(model), name, "--epsilon", "1", "--url", server_url, "--json"])
    assert [row["figure"] for row in json.loads(done.stdout)] == BINARY
    done = CliRunner().invoke(app, ["weights", str(model), "--url", server_url, "--json"])
    assert [row["feature"] for row in json.loads(done.stdout)] == [*FEATURES, "(intercept)"]


# --- the table of counts --------------------------------------------------------------------------------------


def drawn(random: np.random.Generator, outputs: int, rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    scores = random.choice([-1e300, -5.0, -1e-17, 0.0, 1e-17, 0.3, 7.0, np.nan, np.inf], (rows, outputs))
    return scores, random.choice([-1.0, 1.0, np.nan] if outputs == 1 else [1.0, 2.0, 3.0, 0.0, np.nan], rows)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_replaced_row_moves_two_cells_by_one_at_most(outputs):
    random = np.random.default_rng(7)
    tally = ScoreBins(4, 0, False, parted=True) if outputs == 1 else Confusion()
    plan = EvaluationPlan(1.0, 0.0, 30, max(2, outputs), tally)
    moves = []
    for _ in range(300):
        (scores, labels), (other, label) = drawn(random, outputs), drawn(random, outputs, 1)
        before = tally(scores, labels)
        assert before.shape == (np.prod(plan.shape),)
        scores[3], labels[3] = other[0], label[0]
        moves.append(np.abs(tally(scores, labels) - before))
    assert max(move.max() for move in moves) == 1
    assert max(move.sum() for move in moves) == 2 == plan.cells


def test_upper_bins_hold_exactly_the_predicted_positive():
    """Where the probability rounds to 1/2 it would be in them for a score of 0 and of -1e-17 too."""
    scores, labels = np.array([[-1.0], [-1e-17], [0.0], [1e-17], [2.0], [np.nan]]), np.ones(6)
    parted, plain = (ScoreBins(2, 0, False, parted=each)(scores, labels).reshape(2, 2) for each in (True, False))
    assert parted[1].tolist() == [4, 2]
    assert plain[1].tolist() == [2, 4]


def test_the_tally_of_an_evaluation_is_described_as_data():
    from dbdp.learning.counts.tallies import as_data

    tally = ScoreBins(20, 0, True, parted=True)
    assert tally_from(json.loads(json.dumps(as_data(tally)))) == tally


@pytest.mark.parametrize(("releases", "missed"), others_slow([(100, 24), (400, 60)], (100, 24)))
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_error_covers_what_the_noise_does(delta, releases, missed):
    """Each is missed by 5 of 100: for each figure, so many misses have a chance below 1e-9."""
    random = np.random.default_rng(3)
    plan = EvaluationPlan(1.0, delta, 2000, 2, ScoreBins(20, 0, False, parted=True))
    counts = random.multinomial(2000, np.full(40, 1 / 40)).reshape(2, 20)
    exact = plan._figures(counts)
    misses = np.zeros(7)
    for _ in range(releases):
        figures = plan.answer(plan.release(counts))
        misses += [
            abs(each["value"] - own) > each["plus_minus"] for each, own in zip(figures.values(), exact, strict=True)
        ]
    assert misses.max() < missed


def test_an_empty_table_has_no_figures():
    plan = EvaluationPlan(1.0, 0.0, 9, 2, ScoreBins(2, 0, False, parted=True))
    figures = plan.answer(np.zeros((2, 2), np.int64))
    assert {each["value"] for each in figures.values()} == {None}
    assert json.dumps(figures, allow_nan=False)


@pytest.mark.parametrize("threshold", [0.33, 0.123, 1 / 3, 0.9999, 1e-5])
def test_a_refused_threshold_has_remedies_that_work(threshold):
    def planned(threshold, bins):
        return EvaluationPlan(1.0, 0.0, 30, 2, ScoreBins(bins, 0, False, parted=True), threshold)

    with pytest.raises(ValueError, match="must lie between two of the 20 bins") as error:
        planned(threshold, 20)
    planned(float(re.search(r"choose ([0-9.e-]+)", str(error.value))[1]), 20)
    bins = re.search(r"bins => (\d+)", str(error.value))
    assert (bins is None) == (threshold in (0.9999, 1e-5))
    if bins:
        planned(threshold, int(bins[1]))


def test_a_figure_that_the_noise_hides_has_no_value():
    """Noise of about a hundred rows on six: nothing is known, and a share cut at 0 or 1 would pass for a figure."""
    plan = EvaluationPlan(0.02, 0.0, 3, 2, ScoreBins(2, 0, False, parted=True))
    for counts in ([[3, 0], [0, 3]], [[0, 3], [3, 0]], [[1, 1], [1, 4000]]):
        answer = plan.answer(np.array(counts))
        assert all((figure["value"] is None) == (figure["plus_minus"] is None) for figure in answer.values())
    assert answer["recall"]["value"] is not None and plan.answer(np.array([[3, 0], [0, 3]]))["auc"]["value"] is None
