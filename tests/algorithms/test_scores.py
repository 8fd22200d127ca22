"""Scores without a database: tallies, their sensitivity, and the figures computed from them."""

import json
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from dbdp.algorithms.scores import metrics
from dbdp.algorithms.scores.class_balance import ClassBalancePlan
from dbdp.algorithms.scores.confusion import AccuracyPlan, ConfusionPlan
from dbdp.algorithms.scores.counting import CountPlan
from dbdp.algorithms.scores.metrics import ScoredFacts, ScoreRequest, score_plan
from dbdp.algorithms.scores.residuals import ResidualPlan
from dbdp.algorithms.scores.score_bins import ScoreBinsPlan, discretisation, figures, roc
from dbdp.learning.counts import tallies
from dbdp.learning.counts.tallies import STEPS, ScoreBins, confusion, linear_scores
from dbdp.learning.networks.architecture import network_named
from dbdp.learning.rows.encoding import pack

ROWS = 60
BINARY = ScoredFacts(ROWS, [None, "yes"], 1)
MANY = ScoredFacts(ROWS, ["a", "b", "c"], 3)
NUMBER = ScoredFacts(ROWS, [], 1, (-3.0, 5.0))
FACTS = {"binary": BINARY, "many": MANY, "number": NUMBER}
ASKED = [("binary", metric) for metric in metrics.OF_CLASSES] + [("many", metric) for metric in metrics.OF_CLASSES]
ASKED += [("number", metric) for metric in metrics.OF_NUMBERS]


def plan_of(kind, metric, epsilon=1.0, delta=0.0, *, bins=5, moved=1):
    """The plan of a metric for labels of a kind."""
    facts = FACTS[kind]
    positive = "b" if kind == "many" and metric in ("auc", "calibration") else None
    facts = ScoredFacts(facts.rows, facts.classes, facts.outputs, facts.label_bounds, moved=moved)
    return score_plan(ScoreRequest(metric, epsilon, delta, bins, positive), facts)


def balance(kind, epsilon=1.0, delta=0.0, *, moved=1):
    return ClassBalancePlan(epsilon, delta, ROWS, FACTS[kind].outputs, moved=moved)


def labels(kind, random, count):
    """Random labels as they are packed, some of them none."""
    result = {
        "binary": random.choice([-1.0, 1.0], count),
        "many": random.integers(1, 4, count).astype(float),
        "number": random.choice([-1.0, 1.0, 0.25], count),
    }[kind]
    return np.where(random.random(count) < 0.1, np.nan, result)


def table(kind, count=ROWS):
    random = np.random.default_rng()
    return pack(random.normal(size=(count, 4)) * 3, labels(kind, random, count))


def models(kind):
    return np.random.default_rng().normal(size=(FACTS[kind].outputs, 4)) * 20


# --- one record -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", [1, 3])
@pytest.mark.parametrize(("kind", "metric"), [*ASKED, ("binary", "class_balance"), ("many", "class_balance")])
def test_a_neighbour_attains_the_tallys_covered_distance(kind, metric, moved):
    """The worst of many is attained: some records go together, from one extreme to another."""
    plan, gaussian = (
        balance(kind, 1.0, delta, moved=moved)
        if metric == "class_balance"
        else plan_of(kind, metric, 1.0, delta, moved=moved)
        for delta in (0.0, 1e-6)
    )
    vectors, distances = models(kind), []
    for _ in range(60):
        rows = table(kind)
        rows[:moved] = rows[0]
        other, scores = table(kind), linear_scores(vectors, rows)
        if metric == "accuracy" or kind == "number":  # a right row becomes a wrong one
            other, extremes = rows.copy(), (-np.sign(scores[:, 0]), np.sign(scores[:, 0]))
            if kind == "many":
                extremes = 1.0 + scores.argmin(axis=1), 1.0 + scores.argmax(axis=1)
            other[:, -1], rows[:, -1] = extremes
        replaced = rows.copy()
        replaced[:moved] = other[0]
        change = plan.tally(linear_scores(vectors, replaced), replaced[:, -1]) - plan.tally(scores, rows[:, -1])
        distances.append((np.abs(change).sum(), math.sqrt(np.square(change).sum())))
    furthest = np.max(distances, axis=0)
    assert 0.99 * plan.mechanism.sensitivity <= furthest[0] <= plan.mechanism.sensitivity
    assert 0.99 * gaussian.mechanism.sensitivity <= furthest[1] <= gaussian.mechanism.sensitivity


@pytest.mark.parametrize("moved", [1, 3])
@pytest.mark.parametrize(
    ("kind", "metric"),
    [("binary", "accuracy"), ("many", "accuracy"), ("number", "mean_absolute_error"), ("number", "mean_squared_error")],
)
def test_a_neighbour_of_a_private_size_attains_two_counts(kind, metric, moved):
    """Records turn from right to wrong, or come in the place of zero rows, whose label is NaN here."""
    facts = replace(FACTS[kind], moved=moved, has_public_rows=False)
    plan, gaussian = (score_plan(ScoreRequest(metric, 1.0, delta), facts) for delta in (0.0, 1e-6))
    vectors, distances = models(kind), []
    for _ in range(60):
        rows = table(kind)
        rows[:moved] = rows[0]
        scores, wrong, nothing = linear_scores(vectors, rows), rows[:, -1].copy(), rows[:, -1].copy()
        nothing[:moved] = np.nan
        wrong[:moved] = -np.sign(scores[0, 0]) if kind != "many" else 1.0 + scores[0].argmin()
        right = np.where(np.arange(ROWS) < moved, 1.0 + scores.argmax(axis=1) if kind == "many" else -wrong, wrong)
        for one, other in ((right, wrong), (nothing, wrong), (nothing, right)):
            change = plan.tally(scores, one) - plan.tally(scores, other)
            distances.append((np.abs(change).sum(), math.sqrt(np.square(change).sum())))
    furthest = np.max(distances, axis=0)
    assert plan.shape == (2,)
    assert 0.99 * plan.mechanism.sensitivity <= furthest[0] <= plan.mechanism.sensitivity
    assert 0.99 * gaussian.mechanism.sensitivity <= furthest[1] <= gaussian.mechanism.sensitivity


@pytest.mark.parametrize("power", [1, 2])
def test_an_error_across_the_bounds_moves_a_whole_step(power):
    """An error from one end of the bounds to the other moves the sum by all of a step."""
    tally = tallies.Errors(power)
    most = tally(np.array([[1e9]]), np.array([-1.0]))[0]
    assert most == tally.most == STEPS * 2**power
    assert tally(np.array([[-1.0]]), np.array([-1.0]))[0] == 0
    assert tally(np.zeros((1, 1)), np.zeros(1))[0] == 0  # a zero row


STRANGE = [np.nan, np.inf, -np.inf, 0.0, 0.5, -1.0, 1.0, 2.0, 3.0, 4.0, -2.0, 1e30, 5e-324]


@given(
    given=st.lists(st.tuples(st.sampled_from(STRANGE), *[st.sampled_from(STRANGE)] * 3), min_size=1, max_size=6),
    kind=st.sampled_from([*ASKED, ("binary", "class_balance")]),
    softmax=st.booleans(),
)
def test_whatever_a_row_holds_it_adds_as_planned_at_most(given, kind, softmax):
    plan = balance("binary") if kind[1] == "class_balance" else plan_of(*kind)
    tally = ScoreBins(5, 0, softmax) if isinstance(plan.tally, ScoreBins) else plan.tally
    values = np.array(given)
    scores, outputs = values[:, 1:], FACTS[kind[0]].outputs
    with np.errstate(all="raise", under="ignore"):
        whole = tally(scores[:, :outputs], values[:, 0])
        each = [tally(scores[row : row + 1, :outputs], values[row : row + 1, 0]) for row in range(len(values))]
    assert np.array_equal(whole, np.sum(each, axis=0))
    assert all(0 <= one.sum() <= plan.step * ((plan.cells + 1) // 2) for one in each)
    assert whole.shape == (math.prod(plan.shape),)


# --- what is counted ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "many"])
def test_correct_rows_are_the_diagonal_of_the_matrix(kind):
    rows, vectors = table(kind, 500), models(kind)
    scores = linear_scores(vectors, rows)
    matrix = confusion(scores, rows[:, -1])
    assert plan_of(kind, "accuracy").tally(scores, rows[:, -1]).tolist() == [np.trace(matrix)]
    assert balance(kind).tally(scores, rows[:, -1]).tolist() == matrix.sum(axis=1).tolist()
    assert 0 < np.trace(matrix) < matrix.sum() < 500


@pytest.mark.parametrize(("kind", "positive", "place"), [("binary", None, 0), ("many", "a", 0), ("many", "c", 2)])
def test_a_row_is_in_the_bin_of_its_probability(kind, positive, place):
    rows, vectors = table(kind, 400), models(kind)
    scores = linear_scores(vectors, rows)
    plan = score_plan(ScoreRequest("auc", 1.0, bins=7, positive=positive), FACTS[kind])
    expected = np.zeros((2, 7), np.int64)
    for one, label in zip(scores[:, place], rows[:, -1].tolist(), strict=True):
        if label != 0:  # a zero row
            own = label == (1.0 if kind == "binary" else place + 1)
            expected[int(own), min(int(7 / (1 + math.exp(-one))), 6)] += 1
    assert plan.tally(scores, rows[:, -1]).reshape(2, 7).tolist() == expected.tolist()
    assert (expected.sum(axis=1) > 0).all()


def test_a_networks_probability_is_its_softmax():
    network, rows = network_named("mlp:8", inputs=5, outputs=3, intercept=True), table("many", 300)
    rows = pack(np.random.default_rng().normal(size=(300, 5)), rows[:, -1].astype(float) + (rows[:, -1] == 0))
    scores = network.scores(np.random.default_rng().normal(size=network.parameters) * 2, rows)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    result = ScoreBins(10, 1, True)(scores, rows[:, -1]).reshape(2, 10)
    expected = np.bincount(np.minimum((shares[:, 1] * 10).astype(int), 9), minlength=10)
    assert np.abs(result.sum(axis=0) - expected).sum() <= 2  # of a row on a border
    assert result[1].sum() == (rows[:, -1] == 2).sum()


@pytest.mark.parametrize("power", [1, 2])
def test_errors_add_up_within_the_bounds(power):
    random = np.random.default_rng()
    scores, true = random.normal(size=(1000, 1)) * 2, random.uniform(-1, 1, 1000)
    result = tallies.Errors(power)(scores, true)[0] / STEPS
    exact = (np.abs(np.clip(scores[:, 0], -1, 1) - true) ** power).sum()
    assert abs(result - exact) <= 1000 / STEPS / 2
    plan = plan_of("number", tuple(metrics.POWERS)[power - 1])
    steps = np.array([round(exact / 1000 * ROWS * STEPS)])
    expected = exact / 1000 * 4**power  # half the range is 4
    assert plan.answer(steps)[plan.metric] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["Confusion", "Correct", "Labels", "ScoreBins", "Errors", "ResidualsAndLabels"])
def test_a_tally_is_described_as_data(kind):
    given = {"Labels": {"classes": 3}, "ScoreBins": {"bins": 4, "output": 1, "softmax": True}, "Errors": {"power": 2}}
    tally = getattr(tallies, kind)(**given.get(kind, {}))
    assert tallies.tally_from(json.loads(json.dumps(tallies.as_data(tally)))) == tally


# --- what follows from the histogram --------------------------------------------------------------------


def histogram(bins=8, count=3000):
    """Counts, and the rows that they are of: the middle of each one's bin, and its class."""
    random = np.random.default_rng()
    own = random.random(count) < 0.3
    places = np.clip((random.beta(2 + 3 * own, 4) * bins).astype(int), 0, bins - 1)
    counts = np.array([np.bincount(places[~own], minlength=bins), np.bincount(places[own], minlength=bins)])
    return counts, (places + 0.5) / bins, own


def test_exact_counts_give_the_figures_of_mid_bin_rows():
    counts, middles, own = histogram()
    result = figures(counts)
    assert result[0] == pytest.approx(roc_auc_score(own, middles), rel=1e-12)
    assert result[1] == pytest.approx(brier_score_loss(own, middles), rel=1e-12)
    assert result[2] == pytest.approx(log_loss(own, middles), rel=1e-12)
    shares = [own[middles == middle].mean() for middle in np.unique(middles)]
    assert result[3:][counts.sum(axis=0) > 0] == pytest.approx(shares)


def test_the_bins_move_the_area_by_the_reported_at_most():
    for _ in range(20):
        random = np.random.default_rng()
        own, bins = random.random(500) < 0.4, 4
        probabilities = np.clip(random.normal(0.4 + 0.2 * own, 0.2), 0.001, 0.999)
        counts = ScoreBins(bins, 0, False)(
            np.log(probabilities / (1 - probabilities))[:, None], np.where(own, 1.0, -1.0)
        )
        counts = counts.reshape(2, bins)
        assert abs(figures(counts)[0] - roc_auc_score(own, probabilities)) <= discretisation(counts) + 1e-12
    in_one_bin = np.array([[10, 0], [20, 0]])  # they may be in perfect order, and are taken for ties
    assert 1.0 - figures(in_one_bin)[0] == discretisation(in_one_bin) == 0.5


def test_the_curve_never_falls_and_ends_at_one_and_one():
    counts, middles, own = histogram()
    points = roc(counts - 40)  # some counts are below 0
    rates = np.array([[point["false_positive_rate"], point["true_positive_rate"]] for point in points])
    assert (np.diff(rates, axis=0) >= 0).all()
    assert rates.min() >= 0
    exact = roc(counts)
    assert [exact[-1][key] for key in ("threshold", "false_positive_rate", "true_positive_rate")] == [0.0, 1.0, 1.0]
    assert exact[3]["true_positive_rate"] == pytest.approx((middles[own] > exact[3]["threshold"]).mean())


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("figure", [0, 1, 2, 5])
def test_noise_moves_a_figure_within_its_width(delta, figure):
    """And by more than half of it in more than 15: a width that says too much would be seen."""
    counts = histogram()[0]
    plan = ScoreBinsPlan(0.2, delta, 3000, ScoreBins(8, 0, False))
    exact, releases = figures(counts)[figure], 1000
    width = plan.half_widths(figures, plan.release(counts))[figure]
    errors = np.array([abs(figures(plan.release(counts))[figure] - exact) for _ in range(releases)])
    assert (errors <= 1.25 * width).mean() > 0.85  # the width's own counts are noisy: 0.96 at the least
    assert (errors <= width / 2).mean() < 0.92  # 0.81 at the most
    assert stats.binom.cdf(850, releases, 0.95) + stats.binom.sf(919, releases, 0.85) < 1e-9  # false alarms


def test_intervals_need_memory_for_a_few_draws_of_noise_only():
    """All of them would be eight gigabytes of a thousand classes, and the failure would come after the charge."""
    plan = ConfusionPlan(1.0, 0.0, 1000, 150)
    noisy = np.ones((150, 150), np.int64)
    tracemalloc.start()
    try:
        plan.answer(noisy)
        assert tracemalloc.get_traced_memory()[1] < 40 * noisy.nbytes  # 500 draws are 500 times as much
    finally:
        tracemalloc.stop()


def test_noise_of_one_count_stays_within_the_reported_width():
    for delta in (0.0, 1e-6):
        plan = AccuracyPlan(0.05, delta, 1000)
        noise = np.array([plan.release(np.array([500]))[0] - 500 for _ in range(4000)])
        within = (np.abs(noise) <= plan.half_width).mean()
        assert 0.95 - 6.5 * 0.0035 < within < 0.95 + 6.5 * 0.0035
        answer = plan.answer(np.array([500]))
        assert (answer["accuracy"], answer["accuracy_noise"]) == (0.5, plan.half_width / 1000)


@settings(max_examples=40)
@given(
    kind=st.sampled_from([*ASKED, ("binary", "class_balance"), ("many", "class_balance")]),
    delta=st.sampled_from([0.0, 1e-6]),
    counts=st.lists(st.sampled_from([-(2**62), -5, -1, 0, 1, 3, 1000, 2**62]), min_size=10, max_size=10),
)
def test_whatever_the_noise_the_answer_is_json(kind, delta, counts):
    plan = balance(kind[0], 0.1, delta) if kind[1] == "class_balance" else plan_of(*kind, 0.1, delta)
    noisy = np.resize(np.array(counts), plan.shape)
    with np.errstate(all="raise", under="ignore"):
        released_answer = plan.answer(noisy)
    json.dumps(released_answer, allow_nan=False)
    assert 0 <= (released_answer.get("auc") or 0) <= 1


def test_at_a_border_the_width_is_not_nothing():
    """An area above 1 is shown as 1, and noise would move it all the same."""
    plan = ScoreBinsPlan(0.1, 0.0, 300, ScoreBins(2, 0, False))
    released_answer = plan.answer(np.array([[200, -60], [-30, 150]]))
    assert released_answer["auc"] == 1.0
    assert released_answer["auc_noise"] > 0.05


def test_the_balance_suggests_the_weight_of_even_classes():
    plan = ClassBalancePlan(10.0, 0.0, 100, 1)
    released_answer = plan.answer(np.array([75, 25]))
    assert (released_answer["shares"], released_answer["positive_weight"]) == ([0.75, 0.25], 3.0)
    assert plan.answer(np.array([75, -2]))["positive_weight"] is None
    assert "positive_weight" not in ClassBalancePlan(1.0, 0.0, 100, 3).answer(np.array([1, 2, 3]))


# --- plans ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "metric"), ASKED)
def test_what_is_explained_is_what_is_done(kind, metric):
    for delta in (0.0, 1e-6):
        plan = plan_of(kind, metric, 0.5, delta)
        released_answer = json.loads(json.dumps(plan.explain(), allow_nan=False))
        assert isinstance(plan, CountPlan)
        assert (released_answer["rows"], released_answer["cells"], released_answer["epsilon"]) == (
            ROWS,
            math.prod(plan.shape),
            0.5,
        )
        assert released_answer["mechanism"] == ("gaussian" if delta else "discrete_laplace")
        assert released_answer["delta"] == delta
        assert released_answer["noise_scale"] == plan.mechanism.noise_scale
        if not delta:
            assert released_answer["noise_scale"] == pytest.approx(plan.cells * plan.step / 0.5)


def test_an_accuracy_costs_half_the_noise_of_a_matrix():
    accuracy, matrix = AccuracyPlan(0.5, 0.0, 100), ConfusionPlan(0.5, 0.0, 100)
    assert matrix.mechanism.noise_scale == 2 * accuracy.mechanism.noise_scale == 4


@pytest.mark.parametrize("metric", ["auc", "calibration"])
def test_two_names_stand_for_one_histogram(metric):
    assert plan_of("binary", metric) == plan_of("binary", "auc")


def test_what_cannot_be_planned_is_refused_with_a_remedy():
    for kind, options, named in (
        ("binary", {"metric": "f1"}, r"metric 'f1' is unknown; choose one of accuracy, confusion, auc"),
        ("binary", {"metric": "mean_squared_error"}, "needs a numeric label, and this one has classes; choose one"),
        ("number", {"metric": "auc"}, "needs classes, and the label is a number; choose one of mean_absolute_error"),
        ("binary", {"metric": "auc", "bins": 1}, "bins = 1 must be a whole number between 2 and 1000"),
        ("binary", {"metric": "auc", "bins": 1001}, "bins = 1001 must be"),
        ("many", {"metric": "auc"}, "positive = None is not a class .* choose one of a, b, c"),
        ("many", {"metric": "auc", "positive": "d"}, "positive = 'd' is not a class"),
        ("binary", {"metric": "auc", "positive": "no"}, "choose one of yes"),
        ("many", {"metric": "accuracy", "positive": "a"}, "positive = 'a' has no meaning for metric 'accuracy'"),
        ("binary", {"metric": "accuracy", "epsilon": 0.0}, "epsilon = 0.0 must be positive"),
        ("binary", {"metric": "accuracy", "delta": 1.0}, "delta = 1.0 must be"),
    ):
        with pytest.raises(ValueError, match=named):
            score_plan(ScoreRequest(**{"epsilon": 1.0} | options), FACTS[kind])


def test_a_sum_that_a_float_may_not_hold_is_refused():
    ResidualPlan(1.0, 0.0, 2**31 - 1, "mean_squared_error", (0.0, 1.0))
    with pytest.raises(ValueError, match="rows = 2147483648 must be fewer than 2147483648"):
        ResidualPlan(1.0, 0.0, 2**31, "mean_squared_error", (0.0, 1.0))
