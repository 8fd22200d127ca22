"""The confusion matrix: cells count rows, one record changes two of them, and the noise is the charged one."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from goodness import ALPHA, of_integers, of_reals
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dbdp.algorithms.scores.confusion import ConfusionPlan, scores
from dbdp.learning import kernels
from dbdp.learning.counts.tallies import confusion, linear_scores
from dbdp.learning.networks.architecture import network_named
from dbdp.learning.rows.encoding import pack
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import (
    EpsilonDeltaDpEvent,
    Release,
    SelfComposedDpEvent,
    pure_divergence,
)
from dbdp.privacy.counts import CountLaplace
from dbdp.privacy.noise.samplers import Entropy, discrete_laplace

OUTPUTS = pytest.mark.parametrize("outputs", [1, 2, 5])


def packed(count, dimension, outputs, *, unlabelled=0):
    random = np.random.default_rng()
    labels = random.integers(1, outputs + 1, count).astype(float) if outputs > 1 else random.choice([-1.0, 1.0], count)
    labels[:unlabelled] = np.nan
    return pack(random.normal(size=(count, dimension)), labels)


def matrix(models, rows):
    return confusion(linear_scores(models, rows), rows[:, -1])


# --- counting -------------------------------------------------------------------------------------------


@OUTPUTS
def test_a_labelled_row_is_in_the_cell_of_its_prediction(outputs):
    models, rows = np.eye(5, 4)[:outputs], packed(3000, 4, outputs, unlabelled=20)
    expected = np.zeros((max(outputs, 2),) * 2, np.int64)
    for row in rows[rows[:, -1] != 0].astype(float):
        decisions = [math.fsum(row[:4] * model) for model in models]
        predicted = int(decisions[0] > 0) if outputs == 1 else decisions.index(max(decisions))
        true = int(row[-1] > 0) if outputs == 1 else int(row[-1]) - 1
        expected[true, predicted] += 1
    result = matrix(models, rows)
    assert result.dtype == np.int64
    assert result.tolist() == expected.tolist()
    assert result.sum() == 2980
    assert np.count_nonzero(result) == result.size  # else this table could not have told the cells apart


@OUTPUTS
def test_what_is_off_the_diagonal_are_the_errors(outputs):
    models, rows = np.random.default_rng().normal(size=(outputs, 4)), packed(500, 4, outputs, unlabelled=30)
    result = matrix(models, rows)
    assert result.sum() - np.trace(result) == kernels.count_errors(models, rows) - 30  # there a zero row is an error


def test_a_network_is_counted_as_linear_models_are():
    network = network_named("mlp:8", inputs=5, outputs=3, intercept=True)
    rows = packed(200, 5, 3)
    result = confusion(network.scores(network.initial(), rows), rows[:, -1])
    errors = np.argmax(network.scores(network.initial(), rows), axis=1) + 1 != rows[:, -1]
    assert result.sum() == 200
    assert result.sum() - np.trace(result) == errors.sum()


def test_no_score_is_minus_one_and_of_equals_the_first():
    """As predict and predict_class do."""
    assert confusion(np.zeros((2, 1)), np.array([-1.0, 1.0])).tolist() == [[1, 0], [1, 0]]
    assert confusion(np.zeros((3, 3)), np.array([1.0, 2.0, 3.0]))[:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("dimension", [1, 3, 8, 129])
def test_the_scores_of_a_row_do_not_depend_on_the_others(dimension):
    """To the last bit, wherever the rows are cut and whatever their order."""
    for cut in (1, 7, 100, 499):
        models, rows = np.random.default_rng().normal(size=(3, dimension)), packed(500, dimension, 3)
        whole, order = linear_scores(models, rows), np.random.default_rng().permutation(500)
        parts = np.concatenate([linear_scores(models, part) for part in (rows[:cut], rows[cut:])])
        assert whole.tobytes() == parts.tobytes()
        assert linear_scores(models, rows[order]).tobytes() == whole[order].tobytes()


STRANGE = [np.nan, np.inf, -np.inf, 0.0, 0.5, -1.0, 1.0, 2.0, 3.0, 4.0, -2.0, 1e30]


@given(
    labels=st.lists(st.sampled_from(STRANGE), min_size=1, max_size=6),
    outputs=st.sampled_from([1, 2, 3]),
    values=st.lists(st.sampled_from([np.nan, np.inf, -np.inf, 0.0, 1.0, -1e300]), min_size=18, max_size=18),
)
def test_whatever_a_row_holds_it_is_in_one_cell_at_most(labels, outputs, values):
    given = np.array(values).reshape(6, 3)[: len(labels), :outputs]
    kinds = [-1.0, 1.0] if outputs == 1 else [*range(1, outputs + 1)]
    for place, label in enumerate(labels):
        result = confusion(given[place : place + 1], np.array([label]))
        assert result.sum() == (label in kinds)
    assert confusion(given, np.array(labels)).sum() == sum(label in kinds for label in labels)


# --- one record -----------------------------------------------------------------------------------------


@OUTPUTS
def test_a_record_moves_two_cells_by_one_at_most(outputs):
    """Replacing a record moves two cells by one at most and some records do."""
    models, rows, distances = np.random.default_rng().normal(size=(outputs, 4)), packed(40, 4, outputs), set()
    before = matrix(models, rows)
    for place, other in enumerate(packed(40, 4, outputs, unlabelled=3)):
        moved = rows.copy()
        moved[place] = other
        change = matrix(models, moved) - before
        assert np.abs(change).max() <= 1
        assert np.count_nonzero(change) <= 2
        distances.add((int(np.abs(change).sum()), int(np.square(change).sum())))
    assert max(distances) == (2, 2)  # L1 distance 2, squared L2 distance 2: what the noise is for
    assert ConfusionPlan(1.0, 0.0, 40).mechanism.sensitivity == 2
    assert math.sqrt(2) <= ConfusionPlan(1.0, 1e-6, 40).mechanism.sensitivity < 1.4142137


@given(epsilon=st.floats(1e-3, 50), moved=st.sampled_from([(1, -1), (1, 0), (0, -1), (2, 0)]))
def test_a_cells_log_moves_within_its_share_of_epsilon(epsilon, moved):
    """P(k) ∝ e^{-|k|/t}, exactly: two cells that move by one each cost ε, for ε as a float and as it is written."""
    scale = CountLaplace(2, epsilon).scale
    cost = sum(abs(each) for each in moved) / scale
    assert cost <= Fraction(epsilon)
    assert cost <= Fraction(repr(epsilon))
    assert cost >= Fraction(epsilon) * (1 - Fraction(1, 10**15)) or sum(map(abs, moved)) == 1


# --- noise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0, 3.3, 6.0])
def test_a_cells_noise_is_laplace_of_two_over_epsilon(epsilon):
    plan, counts = ConfusionPlan(epsilon, 0.0, 10, 100), np.arange(10_000).reshape(100, 100)
    noise = np.concatenate([(plan.release(counts) - counts).ravel() for _ in range(2)])
    reach = math.ceil(100 / epsilon) + 20
    assert of_integers(noise, lambda k: -np.abs(k) * epsilon / 2, reach) > ALPHA
    for wrong in (epsilon * 1.3, epsilon / 1.3):
        assert of_integers(noise, lambda k: -np.abs(k) * wrong / 2, reach) < ALPHA  # noqa: B023


@pytest.mark.parametrize(("scale", "divisor"), [(7, 3), (3, 7), (1, 1), (20, 1)])
def test_a_scale_that_is_a_fraction_is_sampled_exactly(scale, divisor):
    entropy = Entropy()
    sample = np.array([discrete_laplace(scale, entropy, divisor) for _ in range(20_000)])
    assert of_integers(sample, lambda k: -np.abs(k) * divisor / scale, 60 * scale // divisor + 20) > ALPHA
    assert of_integers(sample, lambda k: -np.abs(k) * 1.2 * divisor / scale, 60 * scale // divisor + 20) < ALPHA


def test_noise_with_a_delta_is_a_rounded_analytic_gaussian():
    epsilon, delta = 0.05, 1e-6
    plan, counts = ConfusionPlan(epsilon, delta, 10, 100), np.full((100, 100), 7)
    noise = np.concatenate([(plan.release(counts) - counts).ravel() for _ in range(3)])
    sigma = math.sqrt(2) * analytic_noise_multiplier(epsilon, delta)  # about 100: the rounding is not seen
    spread = noise + np.random.default_rng().uniform(-0.5, 0.5, noise.shape)
    assert of_reals(spread, stats.norm(scale=sigma)) > ALPHA
    for wrong in (sigma * 1.1, sigma / 1.1):
        assert of_reals(spread, stats.norm(scale=wrong)) < ALPHA


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_matrix_is_exact_with_much_epsilon_only(delta):
    counts = np.arange(9).reshape(3, 3) * 1000
    assert ConfusionPlan(1e5, delta, 10, 3).release(counts).tolist() == counts.tolist()
    assert np.abs(ConfusionPlan(1e-3, delta, 10, 3).release(counts) - counts).max() > 10


def test_the_noise_of_different_cells_is_uncorrelated():
    noise = np.array([ConfusionPlan(0.5, 0.0, 10).release(np.zeros((2, 2))).ravel() for _ in range(4000)])
    off = np.corrcoef(noise.T)[np.triu_indices(4, 1)]
    assert np.abs(off).max() < 6.2 / math.sqrt(4000)  # 6.2 deviations, six times: below 1e-8


# --- charges --------------------------------------------------------------------------------------------


@given(epsilon=st.floats(1e-3, 100))
def test_a_pure_matrix_is_charged_as_two_counts(epsilon):
    """Without delta it is charged as two counts of half of epsilon."""
    guarantee = ConfusionPlan(epsilon, 0.0, 10).guarantee
    assert (guarantee.epsilon, guarantee.delta) == (epsilon, 0.0)
    for order in (1.5, 8.0, 64.0):
        charge = guarantee.event.divergence(order)
        assert charge == pytest.approx(2 * pure_divergence(epsilon / 2, order))
        assert charge <= pure_divergence(epsilon, order) * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("order", [1.5, 4.0, 32.0])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_the_charge_covers_the_worst_neighbours(epsilon, order):
    """Of two cells that move by one each, computed from the exact law; and it is no more than half too much."""
    k = np.arange(-3000, 3001)
    one, other = (-np.abs(k - shift) * epsilon / 2 for shift in (0, 1))
    normaliser = math.log(math.fsum(np.exp(one)))
    exact = 2 * (math.log(math.fsum(np.exp(order * one + (1 - order) * other))) - normaliser) / (order - 1)
    charge = ConfusionPlan(epsilon, 0.0, 10).guarantee.event.divergence(order)
    assert exact <= charge * (1 + 1e-9)
    assert exact > charge / 2


def test_a_ledger_takes_the_guarantee_and_gives_it_back():
    for delta in (0.0, 1e-6):
        guarantee = ConfusionPlan(0.3, delta, 10).guarantee
        assert Release.from_data(json.loads(json.dumps(guarantee.as_data()))) == guarantee
        basic = Budget.of(epsilon=1, delta=1e-5, mode="basic").cost(guarantee)
        assert basic == (300_000_000, round(delta * 10**18))
    whole = Release(SelfComposedDpEvent(EpsilonDeltaDpEvent(0.3, 0.0), 1), 0.3, 0.0)
    budget = Budget.of(epsilon=1, delta=1e-5)
    assert budget.cost(ConfusionPlan(0.3, 0.0, 10).guarantee)[0] < 0.9 * budget.cost(whole)[0]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (-1.0, 0.0), (1.0, 1.0), (1.0, -0.1), (math.nan, 0.0)])
def test_what_is_no_promise_is_refused(epsilon, delta):
    with pytest.raises(ValueError, match="must be"):
        ConfusionPlan(epsilon, delta, 10)


# --- what follows ---------------------------------------------------------------------------------------


def test_accuracy_and_recall_are_shares_of_the_noisy_matrix():
    result = scores(np.array([[50, 10], [20, 20]]))
    assert result["accuracy"] == 0.7
    assert result["precision"] == pytest.approx([50 / 70, 20 / 30])
    assert result["recall"] == pytest.approx([50 / 60, 20 / 40])


def test_cells_below_nothing_count_as_nothing():
    """Cells below nothing count as nothing and empty classes have no share."""
    result = scores(np.array([[8, 2, -3], [0, 0, -1], [-5, 0, -9]]))
    assert result == {
        "accuracy": 0.8,
        "majority_share": 1.0,
        "precision": [1.0, 0.0, None],
        "recall": [0.8, None, None],
    }
    nothing = {"accuracy": None, "majority_share": None, "precision": [None] * 2, "recall": [None] * 2}
    assert scores(np.full((2, 2), -4)) == nothing


def test_what_is_explained_says_what_is_done():
    details = ConfusionPlan(0.5, 0.0, 100, 3).explain()
    assert (details["mechanism"], details["noise_scale"], details["sensitivity"]) == ("discrete_laplace", 4.0, 2.0)
    assert (details["cells"], details["rows"], details["neighbours"]) == (9, 100, "replace-one")
    gaussian = ConfusionPlan(0.5, 1e-6, 100, 3).explain()
    assert (gaussian["mechanism"], gaussian["delta"]) == ("gaussian", 1e-6)
