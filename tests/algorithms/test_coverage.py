"""Rows without an answer: how they are counted, which neighbours attain the bounds, and what the figures say."""

from dataclasses import replace

import numpy as np
import pytest

from dbdp.algorithms.scores.class_balance import ClassBalancePlan
from dbdp.algorithms.scores.evaluation import EvaluationPlan
from dbdp.algorithms.scores.metrics import (
    OF_CLASSES,
    OF_NUMBERS,
    ScoredFacts,
    ScoreRequest,
    evaluation_plan,
    score_plan,
)
from dbdp.algorithms.scores.score_bins import figures, roc
from dbdp.learning.counts.tallies import ScoreBins, tally_of_rows
from dbdp.learning.rows.encoding import (
    NO_ARRAY,
    UNANSWERED,
    ColumnEncoder,
    RandomProjection,
    RealLabels,
    VectorEncoder,
    pack,
    record_layout,
)
from dbdp.learning.rows.features import Numeric

ROWS = 2000
FACTS = {
    "binary": ScoredFacts(ROWS, [None, "yes"], 1, partial=True),
    "many": ScoredFacts(ROWS, ["a", "b", "c"], 3, partial=True),
    "number": ScoredFacts(ROWS, [], 1, (-3.0, 5.0), partial=True),
}
ASKED = [(kind, metric) for kind in ("binary", "many") for metric in (*OF_CLASSES, "evaluation", "class_balance")]
ASKED += [("number", metric) for metric in (*OF_NUMBERS, "evaluation")]
EVERY = pytest.mark.parametrize(("kind", "metric"), ASKED)
PRIVATE = pytest.mark.parametrize("known", [True, False], ids=["public size", "private size"])


def plan_of(kind, metric, epsilon=1.0, delta=0.0, *, moved=1, known=True):
    facts = replace(FACTS[kind], moved=moved, has_public_rows=known)
    if metric == "evaluation":
        return evaluation_plan(epsilon, delta, 4, facts)
    if metric == "class_balance":
        return ClassBalancePlan(epsilon, delta, ROWS, facts.outputs, moved=moved, partial=True)
    positive = "b" if kind == "many" and metric in ("auc", "calibration") else None
    return score_plan(ScoreRequest(metric, epsilon, delta, 4, positive), facts)


def drawn(kind, count=ROWS, lost=0.4):
    """Scores and labels; a part of the rows has no answer, and some have no label."""
    random = np.random.default_rng()
    scores = random.normal(size=(count, FACTS[kind].outputs))
    if kind == "number":
        labels = np.clip(scores[:, 0] / 3 + random.normal(size=count) / 8, -1, 1)
        scores /= 3
    elif kind == "binary":
        labels = np.sign(scores[:, 0] + random.normal(size=count))
    else:
        labels = 1.0 + (scores + random.normal(size=scores.shape)).argmax(axis=1)
    scores[random.random(count) < lost] = np.nan
    return scores, np.where(random.random(count) < 0.1, np.nan, labels)


# --- one record -----------------------------------------------------------------------------------------


@EVERY
@PRIVATE
@pytest.mark.parametrize("moved", [1, 3])
def test_a_row_that_loses_its_answer_attains_the_bounds(kind, metric, moved, known):
    """Among the neighbours are rows that are right, wrong, or have no answer, label or neither."""
    plans = [plan_of(kind, metric, delta=delta, moved=moved, known=known) for delta in (0.0, 1e-6)]
    outputs = FACTS[kind].outputs
    labels = [1.0, -1.0] if kind != "many" else [1.0, 3.0]
    right = np.array([[1.0 if label == 1 else -1.0] if outputs == 1 else np.eye(3)[int(label) - 1] for label in labels])
    records = [*zip(right, labels, strict=True), *zip(right[::-1], labels, strict=True), (right[0], np.nan)]
    records += [(np.full(outputs, np.nan), label) for label in (*labels, np.nan)]
    tallies = [plans[0].tally(np.tile(scores, (moved, 1)), np.full(moved, label)) for scores, label in records]
    moves = [one - other for one in tallies for other in tallies]
    furthest = max(np.abs(move).sum() for move in moves), max(np.linalg.norm(move) for move in moves)
    room = 0.6 if metric.startswith("mean_") else 0.99  # an error needs an answer: the three sums do not move together
    for plan, distance in zip(plans, furthest, strict=True):
        assert room * plan.mechanism.sensitivity <= distance <= plan.mechanism.sensitivity


@EVERY
def test_every_row_with_a_label_is_counted_once(kind, metric):
    plan, (scores, labels) = plan_of(kind, metric), drawn(kind)
    tally = plan.tally(scores, labels)
    answered = (~np.isnan(scores).any(axis=1) & ~np.isnan(labels)).sum()
    assert tally.shape == (np.prod(plan.shape),)
    if metric.startswith("mean_"):
        assert tally[1:].tolist() == [plan.step * answered, plan.step * ((~np.isnan(labels)).sum() - answered)]
    elif kind == "number":
        assert tally.sum() == plan.step * ((~np.isnan(labels)).sum() + answered)
    else:
        assert tally.sum() == (~np.isnan(labels)).sum()


# --- what is said ---------------------------------------------------------------------------------------


def coverage_of(answer):
    """Coverage and its error, of a score or an evaluation."""
    pair = answer["coverage"]
    return tuple(pair.values()) if isinstance(pair, dict) else (pair, answer["coverage_noise"])


@EVERY
@PRIVATE
def test_coverage_is_the_share_of_labelled_rows_with_an_answer(kind, metric, known):
    plan, (scores, labels) = plan_of(kind, metric, 1e4, known=known), drawn(kind)
    answer = plan.answer(plan.release(plan.tally(scores, labels)).reshape(plan.shape))
    exact = (~np.isnan(scores).any(axis=1))[~np.isnan(labels)].mean()
    assert coverage_of(answer)[0] == pytest.approx(exact, abs=1e-3)
    assert 0.5 < exact < 0.7


@EVERY
def test_where_every_row_has_an_answer_coverage_is_public(kind, metric):
    facts = replace(FACTS[kind], partial=False)
    if metric == "class_balance":
        plan = ClassBalancePlan(1.0, 0.0, ROWS, facts.outputs)
    elif metric == "evaluation":
        plan = evaluation_plan(1.0, 0.0, 4, facts)
    else:
        positive = "b" if kind == "many" and metric in ("auc", "calibration") else None
        plan = score_plan(ScoreRequest(metric, 1.0, 0.0, 4, positive), facts)
    answer = plan.answer(plan.release(plan.tally(*drawn(kind, lost=0.0))).reshape(plan.shape))
    assert coverage_of(answer) == (1.0, 0.0)
    assert "unanswered" not in answer


@pytest.mark.parametrize("kind", ["binary", "many"])
def test_rows_without_an_answer_are_wrong(kind):
    scores, labels = drawn(kind)
    predicted = np.sign(scores[:, 0]) if kind == "binary" else 1 + np.nan_to_num(scores).argmax(axis=1)
    right = (predicted == labels) & ~np.isnan(scores).any(axis=1)
    expected = right.sum() / (~np.isnan(labels)).sum()
    for metric in ("accuracy", "confusion", "evaluation"):
        plan = plan_of(kind, metric, 1e4)
        accuracy = plan.answer(plan.tally(scores, labels).reshape(plan.shape))["accuracy"]
        assert (accuracy["value"] if isinstance(accuracy, dict) else accuracy) == pytest.approx(expected)


def test_a_pair_without_an_answer_is_in_the_wrong_order():
    counts, lost = np.array([[30.0, 10.0], [5.0, 45.0]]), np.array([10.0, 50.0])
    assert figures(counts, lost)[0] == pytest.approx(figures(counts)[0] * 0.8 * 0.5)
    assert figures(counts, lost)[1:].tolist() == figures(counts)[1:].tolist()
    curve = np.array([list(point.values())[1:] for point in roc(counts, lost)])
    curve = np.vstack([[0.2, 0.0], curve])  # the false positives without an answer come first
    area = ((curve[1:, 1] + curve[:-1, 1]) / 2 * np.diff(curve[:, 0])).sum()
    assert area == pytest.approx(figures(counts, lost)[0])


def test_a_row_without_an_answer_explains_nothing():
    """R² counts it as if the mean label were predicted."""
    scores, labels = drawn("number")
    plan = plan_of("number", "r2", 1e4)
    answer = plan.answer(plan.tally(scores, labels))
    known = ~np.isnan(labels)
    true, lost = 1 + 4 * labels[known], np.isnan(scores[known, 0])
    predicted = np.where(lost, true.mean(), 1 + 4 * np.clip(np.nan_to_num(scores[known, 0]), -1, 1))
    errors = np.square(predicted - true)
    assert answer["r2"] == pytest.approx(1 - errors.mean() / true.var(), abs=1e-3)
    assert answer["rmse"] == pytest.approx(np.sqrt(errors[~lost].mean()), rel=1e-3)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("kind", "metric"), [("binary", "evaluation"), ("many", "confusion"), ("number", "r2")])
def test_the_error_of_coverage_covers_what_the_noise_does(kind, metric, delta):
    """It is missed by 5 of 100; 60 misses of 400 have a chance below 1e-9, and fewer than 1 too many within half."""
    plan, (scores, labels) = plan_of(kind, metric, 0.5, delta), drawn(kind)
    counts = plan.tally(scores, labels)
    exact, missed, close = (~np.isnan(scores).any(axis=1))[~np.isnan(labels)].mean(), 0, 0
    for _ in range(400):
        value, error = coverage_of(plan.answer(plan.release(counts)))
        missed += abs(value - exact) > error
        close += abs(value - exact) < error / 2
    assert missed < 60
    assert close < 360


# --- how they are marked --------------------------------------------------------------------------------


def test_no_row_with_an_answer_looks_like_a_marked_one():
    """The longest row has norm 1 at most, and the mark is 2."""
    random = np.random.default_rng()
    rows = pack(random.choice([-1e300, 1e300, 2.0, 1.0, 0.0], (500, 3)), np.ones(500))
    assert np.abs(rows[:, :-1]).max() <= 1 < UNANSWERED


ENCODERS = {
    "array": VectorEncoder(2, 2.0, True, labels=RealLabels(-1, 1)),
    "projected": VectorEncoder(2, 2.0, True, labels=RealLabels(-1, 1), projection=RandomProjection(1, 3)),
    "columns": ColumnEncoder((Numeric("u", 0, 1), Numeric("v", 0, 1)), (), True, labels=RealLabels(-1, 1)),
}


@pytest.mark.parametrize("kind", list(ENCODERS))
def test_only_a_row_with_a_label_and_without_features_is_marked(kind):
    """Not an empty slot of a capacity, of which all bytes are 0; a training reads zero rows in both."""
    encoder = ENCODERS[kind]
    records = np.zeros(6, record_layout(encoder))
    records["header"][:5] = [1, 0, 0, 2, 1]
    records["elements"][:5] = 0.5
    records["label"][:5] = [0.5, 0.5, 0.0, np.nan, np.nan]
    records["elements"][[1, 4], 0] = np.nan
    records["header"][2] = [NO_ARRAY, 0, 0, 0, 0]
    marked, packed = (replace(encoder, marks=marks).rows(records.tobytes()) for marks in (True, False))
    assert (marked[:, 0] == UNANSWERED).tolist() == [False, True, True, False, False, False]
    assert marked[[1, 2], -1].tolist() == [0.5, 0.0]
    assert not marked[[1, 2], 1:-1].any()
    assert not packed[1:].any()
    assert marked[[0, 3, 4, 5]].tolist() == packed[[0, 3, 4, 5]].tolist()


def test_a_marked_row_is_counted_by_its_label_only():
    rows = pack(np.ones((4, 2)), np.array([1.0, -1.0, 1.0, np.nan]))
    rows[2, 0], rows[1, 0] = UNANSWERED, UNANSWERED
    described = {"tally": {"kind": "ScoreBins", "bins": 2, "output": 0, "softmax": False, "partial": True}}
    tally = tally_of_rows(np.array([1.0, 1.0]), rows, described | {"network": None, "outputs": 1})
    assert tally.reshape(2, 3).tolist() == [[0, 0, 1], [0, 1, 1]]


def test_the_histogram_of_an_evaluation_has_one_bin_more():
    plan = EvaluationPlan(1.0, 0.0, 10, 2, ScoreBins(4, 0, False, parted=True, partial=True), partial=True)
    assert plan.shape == (2, 5)
