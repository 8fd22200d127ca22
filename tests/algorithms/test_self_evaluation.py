"""The table of a model's own scores: what one record moves, what it calibrates, and the figures that it gives."""

import json
import math

import numpy as np
import pytest
from chance import usually
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import RowsInMemory

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.plan import Released
from dbdp.algorithms.stages import score_calibration, self_evaluation
from dbdp.algorithms.stages.score_calibration import PRIOR, applied, calibration, logistic
from dbdp.algorithms.stages.self_evaluation import ScoreTable
from dbdp.algorithms.stages.table_noise import GaussianTable, LaplaceTable
from dbdp.learning.counts import score_tables
from dbdp.learning.counts.score_tables import NODES, PARTS
from dbdp.learning.counts.tallies import Scores

RANDOM = np.random.default_rng()
SILENT = lambda *_: None  # noqa: E731
ROWS = 40_000
numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


def table(scores, classes):
    return score_tables.table(np.asarray(scores, float), np.asarray(classes)) / PARTS


# --- the table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_a_replaced_record_attains_the_tables_sensitivity(outputs):
    first = table(np.zeros((1, outputs)), [0])
    other = table(np.full((1, outputs), 20.0), [1])
    moved, bound = np.linalg.norm(first - other), GaussianTable(outputs, 1.0).sensitivity
    assert bound * (1 - 1e-9) <= moved <= bound


@given(st.lists(numbers, min_size=6, max_size=6), st.integers(0, 2), st.integers(0, 2))
@settings(max_examples=300)
def test_no_record_moves_the_table_further(values, one, other):
    first, second = (Scores(True)(np.array([each]), np.array([label + 1.0])) / PARTS for each, label in
                     ((values[:3], one), (values[3:], other)))  # fmt: skip
    assert np.linalg.norm(first - second) <= GaussianTable(3, 1.0).sensitivity
    assert first.sum() == second.sum() == 3


@given(numbers)
def test_a_score_is_divided_on_its_side_of_the_decision(score):
    counts = table([[score]], [1])[0]
    assert counts[0].sum() == 0
    assert counts[1, NODES // 2 :].sum() == (1 if score > 0 else 0)
    if abs(score) <= score_tables.LONGEST:
        assert counts[1] @ score_tables.nodes() == pytest.approx(score, abs=8 / PARTS)


def test_log_odds_against_the_rest_are_those_of_softmax():
    scores = RANDOM.normal(0, 3, (50, 4))
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert score_tables.against_the_rest(scores) == pytest.approx(np.log(shares / (1 - shares)), abs=1e-6)


def test_a_row_without_a_label_is_nowhere_in_the_table():
    assert not Scores(False)(np.array([[1.0]]), np.array([math.nan])).any()
    assert not Scores(True)(np.array([[1.0, 2.0, 3.0]]), np.array([4.0])).any()


# --- calibration ----------------------------------------------------------------------------------------------


def test_the_offset_and_the_slope_of_a_class_are_found():
    scores = RANDOM.normal(0, 2, (ROWS, 1))
    classes = RANDOM.random(ROWS) < logistic(0.5 + 0.6 * scores[:, 0])
    found = calibration(table(scores, classes), 1e-6)
    assert found.offsets == pytest.approx([0.5], abs=0.12)
    assert found.slope == pytest.approx(0.6, abs=0.08)


def test_shares_of_three_classes_are_found():
    """Scores that say .83, .10, .07 where .50, .30, .20 are right."""
    classes = RANDOM.choice(3, ROWS, p=[0.5, 0.3, 0.2])
    scores = np.log(np.tile([0.83, 0.10, 0.07], (ROWS, 1)))
    found = calibration(table(score_tables.against_the_rest(scores), classes), 1.0)
    shares = np.exp(found.offsets + found.slope * scores[0])
    assert shares / shares.sum() == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
    assert found.offsets.sum() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("outputs", [1, 4])
def test_noise_alone_leaves_a_model_as_it_is(outputs):
    noise = RANDOM.normal(0, 1000.0, (outputs, 2, NODES))
    found = calibration(noise, 1000.0)
    assert np.abs(found.offsets).max() < 3 * PRIOR
    assert 0 < found.slope < 1 + 3 * PRIOR


def test_without_an_intercept_only_the_slope_is_calibrated():
    found = calibration(table(RANDOM.normal(0, 1, (500, 1)), np.ones(500, int)), 1.0, has_offset=False)
    assert found.offsets == 0
    assert found.errors[0] == 0
    moved = applied(found, Released(np.array([[2.0, 4.0]])), None)
    assert moved.models == pytest.approx(found.slope * np.array([[2.0, 4.0]]))


def test_a_calibrated_model_carries_the_calibrations_error():
    found = calibration(table(RANDOM.normal(0, 1, (500, 1)), RANDOM.integers(0, 2, 500)), 5.0)
    released = Released(np.array([[3.0, 0.0]]), noise_root=np.diag([0.1, 0.2]))
    errors = np.linalg.norm(applied(found, released, 0.5).noise_root, axis=0)
    assert errors[0] == pytest.approx(math.hypot(0.1 * found.slope, 3 * found.errors[1]))
    assert errors[1] == pytest.approx(math.hypot(0.2 * found.slope, 2 * found.errors[0]))


@pytest.mark.parametrize("outputs", [1, 4])
def test_calibration_stops_where_further_steps_change_nothing(monkeypatch, outputs):
    scores = RANDOM.normal(0, 1, (500, outputs))
    noisy = table(scores, RANDOM.integers(0, max(outputs, 2), 500)) + RANDOM.normal(0, 5, (outputs, 2, NODES))
    found = calibration(noisy, 5.0)
    monkeypatch.setattr(score_calibration, "_SHORTEST_STEP", 0.0)
    further = calibration(noisy, 5.0)
    assert np.append(found.offsets, found.slope) == pytest.approx(np.append(further.offsets, further.slope), abs=1e-6)


# --- figures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
def test_tables_have_the_same_figures_together_and_alone(outputs):
    counts = RANDOM.normal(50, 100, (5, outputs, 2, NODES))
    own = ScoreTable(counts[0], GaussianTable(outputs, 1.0))
    calibrated = own.calibration(has_offset=True)
    alone = [own._figures(each, calibrated) for each in counts]
    assert own._figures(counts, calibrated) == pytest.approx(np.array(alone), nan_ok=True)


def test_many_classes_have_the_same_number_of_draws():
    outputs = 40  # so that not all draws are evaluated together
    own = ScoreTable(RANDOM.normal(50, 9, (outputs, 2, NODES)), GaussianTable(outputs, 1.0))
    assert self_evaluation._DRAWS * own.counts.size > self_evaluation._TOGETHER
    figures = own._figures_of_draws(own.calibration(has_offset=True))
    assert figures.shape == (self_evaluation._DRAWS, 2 + NODES)
    assert len(np.unique(figures[:, 0])) == self_evaluation._DRAWS


# --- a training -----------------------------------------------------------------------------------------------


def trained(shares, *, epsilon=10.0, rows=ROWS, **own):
    """Train on one column ±1 whose groups have these shares of the class; return the shares that it says, and more."""
    groups = RANDOM.integers(0, 2, rows)
    labels = np.where(RANDOM.random(rows) < np.take(shares, groups), 1.0, -1.0)
    features = np.stack([2.0 * groups - 1, np.ones(rows)], axis=1) / math.sqrt(2)
    request = Request(epsilon, 1e-6, algorithm="preconditioned_gd", settings=json.dumps(own))
    release = plan(request, Facts(rows, 2)).run(RowsInMemory(features, labels), SILENT)
    said = logistic(np.array([[-1.0, 1.0], [1.0, 1.0]]) / math.sqrt(2) @ release.models[0])
    return said, release.figures, labels == np.where(said[groups] > 0.5, 1.0, -1.0)


@pytest.mark.parametrize("shares", [(0.45, 0.55), (0.05, 0.15), (0.7, 0.9)])
def test_probabilities_are_frequencies(shares):
    assert usually(lambda: trained(shares)[0] == pytest.approx(shares, abs=0.03))
    assert usually(lambda: trained(shares, evaluation_share=0)[0] != pytest.approx(shares, abs=0.03))


def test_a_release_evaluates_itself():
    def is_covered():
        _, figures, right = trained((0.3, 0.8), epsilon=1.0)
        accuracy = figures["evaluation"]["accuracy"]
        return abs(accuracy["value"] - right.mean()) <= 2 * accuracy["plus_minus"] <= 0.1

    assert usually(is_covered)


def test_the_curve_shows_what_is_said_and_what_is_so():
    _, figures, _ = trained((0.3, 0.8))
    curve = figures["evaluation"]["calibration"]
    assert curve
    assert all(abs(point["predicted"] - point["observed"]) < 0.2 for point in curve if point["rows"] > ROWS / 10)


def test_a_table_of_noise_gives_figures_without_a_value():
    """No count of rows is left: nothing is raised, and what is undefined is None."""
    noise = ScoreTable(np.full((1, 2, NODES), -5.0), LaplaceTable(1, 1.0))
    shown = noise.evaluation(noise.calibration(has_offset=True))
    assert shown["accuracy"] == {"value": None, "plus_minus": None}
    assert shown["calibration"] == []


def test_a_figure_that_the_noise_hides_has_no_value():
    """A few rows more than none, far below the noise: a share cut at 1 would pass for an accuracy of 100 %."""
    counts = np.zeros((1, 2, NODES))
    counts[0, 0, 0] = counts[0, 1, -1] = 3.0
    noise = ScoreTable(counts, LaplaceTable(1, 0.01))
    shown = noise.evaluation(noise.calibration(has_offset=True))
    assert [shown[name]["value"] for name in ("accuracy", "majority_share", "auc")] == [None] * 3


def test_softmax_and_svm_evaluate_themselves_too():
    features = np.concatenate([np.eye(3)[RANDOM.integers(0, 3, 3000)], np.ones((3000, 1))], axis=1) / math.sqrt(2)
    labels = features[:, :3].argmax(axis=1) + 1.0
    for loss in ("logistic", "huber_svm"):
        request = Request(5.0, 1e-6, algorithm="preconditioned_gd", loss=loss)
        figures = plan(request, Facts(3000, 4, outputs=3)).run(RowsInMemory(features, labels), SILENT).figures
        assert figures["evaluation"]["mean_auc"]["value"] > 0.8
        assert ("score_calibration" in figures) == (loss == "logistic")
