"""The confusion matrix: cells count rows, their noise is exact, and shares follow from the noisy counts."""

import json
import math

import numpy as np
import pytest
from goodness import ALPHA, of_integers
from hypothesis import given
from hypothesis import strategies as st

from dbdp.algorithms.scores.confusion import ConfusionPlan, scores
from dbdp.learning import kernels
from dbdp.learning.counts.tallies import confusion, linear_scores
from dbdp.learning.networks.architecture import network_named
from dbdp.learning.rows.encoding import pack
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.events import (
    EpsilonDeltaDpEvent,
    Release,
    SelfComposedDpEvent,
    pure_divergence,
)
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


# --- noise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "divisor"), [(7, 3), (3, 7), (1, 1), (20, 1)])
def test_a_scale_that_is_a_fraction_is_sampled_exactly(scale, divisor):
    entropy = Entropy()
    sample = np.array([discrete_laplace(scale, entropy, divisor) for _ in range(20_000)])
    assert of_integers(sample, lambda k: -np.abs(k) * divisor / scale, 60 * scale // divisor + 20) > ALPHA
    assert of_integers(sample, lambda k: -np.abs(k) * 1.2 * divisor / scale, 60 * scale // divisor + 20) < ALPHA


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


def test_a_ledger_takes_the_guarantee_and_gives_it_back():
    for delta in (0.0, 1e-6):
        guarantee = ConfusionPlan(0.3, delta, 10).guarantee
        assert Release.from_data(json.loads(json.dumps(guarantee.as_data()))) == guarantee
        basic = Budget.of(epsilon=1, delta=1e-5, mode="basic").cost(guarantee)
        assert basic == (300_000_000, round(delta * 10**18))
    whole = Release(SelfComposedDpEvent(EpsilonDeltaDpEvent(0.3, 0.0), 1), 0.3, 0.0)
    budget = Budget.of(epsilon=1, delta=1e-5)
    assert budget.cost(ConfusionPlan(0.3, 0.0, 10).guarantee)[0] < 0.9 * budget.cost(whole)[0]


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
        "coverage": 1.0,
        "precision": [1.0, 0.0, None],
        "recall": [0.8, None, None],
        "f1": [8 / 9, 0.0, None],
    }
    nothing = {
        "accuracy": None,
        "majority_share": None,
        "coverage": None,
        "precision": [None] * 2,
        "recall": [None] * 2,
        "f1": [None] * 2,
    }
    assert scores(np.full((2, 2), -4)) == nothing
