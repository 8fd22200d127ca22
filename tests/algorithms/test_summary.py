"""Summaries: what one record moves, and what follows from the noisy joint moment, against NumPy on the same rows."""

import numpy as np
import pytest
from chance import ALARM
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import RowsInMemory
from scipy.stats import binom, chi2

from dbdp.algorithms.families.preconditioned.preconditioning import coordinates_of, matrix_of, moment_sensitivity
from dbdp.algorithms.noisy_sums import Summed
from dbdp.algorithms.scores.moments import JointMoment
from dbdp.algorithms.scores.summary import SummaryPlan
from dbdp.learning import second_moments
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent

WEIGHT = float(np.float32(0.5))


def planned(*, epsilon=1.0, delta=1e-6, rows=300, dimension=3, labels=1, weight=WEIGHT, moved=1):
    return SummaryPlan(epsilon, delta, rows, dimension, labels, weight, moved)


def moment_with(records, labels, plan, others=40):
    """The joint moment of rows among which these are."""
    random = np.random.default_rng(5)
    features = random.normal(size=(others, plan.dimension)) / plan.dimension
    classes = random.integers(1, plan.labels + 1, others) if plan.labels > 1 else random.uniform(-1, 1, others)
    rows = RowsInMemory(np.vstack([features, records]), np.append(classes, labels)).all
    return coordinates_of(second_moments.SecondMoment(plan.dimension, plan.labels, plan.weight).of_rows(rows))


def bound_of(plan, moved):
    return moment_sensitivity(Summed.together(plan.rows), square=1 + plan.weight**2, moved=moved)


@pytest.mark.parametrize("moved", [1, 3])
@pytest.mark.parametrize(("labels", "pair"), [(1, (-1.0, -1.0)), (3, (1, 2))])
def test_orthogonal_records_attain_the_sensitivity(moved, labels, pair):
    """(x, b·y) of squared length 1 + b² each: with one label, x turns by more than a right angle."""
    plan = planned(labels=labels, rows=40 + moved, moved=moved)
    turned = -(plan.weight**2) if labels == 1 else 0.0
    records = [[1, 0, 0], [turned, np.sqrt(1 - turned**2), 0]]
    one, other = (
        moment_with([record] * moved, [label] * moved, plan) for record, label in zip(records, pair, strict=True)
    )
    distance = np.linalg.norm(one - other) / moment_sensitivity(
        Summed.together(plan.rows), square=1 + plan.weight**2, moved=moved
    )
    assert 0.999999 < distance <= 1
    same = moment_with([records[0]] * moved, [pair[0]] * moved, plan)
    assert np.linalg.norm(one - same) == 0


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), labels=st.sampled_from([1, 4]), moved=st.integers(1, 3))
def test_no_records_move_the_joint_moment_further(seed, labels, moved):
    random = np.random.default_rng(seed)
    plan = planned(labels=labels, rows=40 + moved, moved=moved, weight=float(np.float32(random.uniform(0.1, 1))))
    ends = []
    for _ in range(2):
        records = random.normal(size=(moved, 3)) * random.choice([1e-3, 1, 1e3])
        classes = random.integers(0, labels + 1, moved) if labels > 1 else random.choice([-1, 0, 1, 7e9], moved)
        ends.append(moment_with(records, classes, plan))
    assert np.linalg.norm(np.subtract(*ends)) <= moment_sensitivity(
        Summed.together(plan.rows), square=1 + plan.weight**2, moved=moved
    )


def test_the_noise_is_analytic_for_the_covered_sensitivity():
    plan = planned(moved=4)
    multiplier = analytic_noise_multiplier(1.0, 1e-6)
    assert plan.guarantee.event == GaussianDpEvent(multiplier)
    bound = moment_sensitivity(Summed.together(300), square=1.25, moved=4)
    assert bound <= plan.noise.sensitivity < bound * 1.000001
    assert multiplier * bound <= plan.noise.noise_scale < multiplier * bound * 1.000001


def test_each_orthonormal_coordinate_has_the_stated_noise():
    plan = planned(dimension=30)
    noise = plan.release(np.zeros((31, 31))) / plan.noise.noise_scale
    assert len(noise) == 31 * 32 // 2
    least, most = chi2.ppf([ALARM / 2, 1 - ALARM / 2], len(noise))
    assert least < noise @ noise < most
    assert not least < (noise / 2) @ (noise / 2) < most


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"delta": 0.0}, "delta = 0: a summary has Gaussian noise and needs a delta > 0"),
        ({"epsilon": 0.0}, "epsilon = 0.0 must be positive"),
        ({"dimension": 2048}, "coordinates of a summary = 2049 must be a whole number between 1 and 2048: register"),
    ],
)
def test_what_cannot_be_planned_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        planned(**wrong)


@pytest.mark.parametrize("weight", [0.0, 1.5, 0.1])
def test_a_weight_beyond_24_bits_breaks_the_assumption(weight):
    """A weight of more than 24 bits or above 1 breaks the assumption of the proof."""
    with pytest.raises(AssertionError, match="24 bits"):
        planned(weight=weight)


# --- what follows from it ---------------------------------------------------------------------------------


def joint(count=4000, *, scale=0.0, seed=1):
    """Coordinates c with the constant at place 3, and their noisy mean."""
    random = np.random.default_rng(seed)
    columns = np.clip(random.normal(size=(count, 5)) @ random.normal(size=(5, 5)) / 4 + 0.2, -1, 1)
    columns[:, 3] = 1.0
    mean = columns.T @ columns / count
    noise = matrix_of(scale * np.random.default_rng().normal(size=15), 5)
    return columns, JointMoment.of(mean + noise, scale, 3)


def test_without_noise_least_squares_are_those_of_numpy():
    columns, moment = joint()
    fit = moment.least_squares(4, [0, 1, 2], 0.0)
    assert fit.coefficients == pytest.approx(np.linalg.lstsq(columns[:, :4], columns[:, 4], rcond=None)[0], rel=1e-6)


def test_the_ridge_leaves_the_intercept_alone():
    columns, moment = joint()
    fit = moment.least_squares(4, [0, 1, 2], 1e6)
    assert fit.coefficients[:3] == pytest.approx(0, abs=1e-5)
    assert fit.coefficients[3] == pytest.approx(columns[:, 4].mean(), rel=1e-4)


def test_exact_correlations_are_those_of_numpy():
    columns, moment = joint()
    places = [0, 1, 2, 4]
    assert moment.correlations(places)[0] == pytest.approx(np.corrcoef(columns[:, places].T), rel=1e-6)
    variances, _, loadings = moment.principal_components(places)
    values, vectors = np.linalg.eigh(np.cov(columns[:, places].T, bias=True))
    assert variances == pytest.approx(values[::-1], rel=1e-6)
    assert np.abs(loadings @ vectors[:, ::-1]) == pytest.approx(np.eye(4), abs=1e-6)


def test_the_intervals_hold_the_noise_19_times_of_20():
    scale, runs = 1e-4, 1000
    truth = figures(joint()[1])[0]
    errors, widths = np.array([figures(joint(scale=scale)[1]) for _ in range(runs)]).swapaxes(0, 1)
    outside, halved = ((np.abs(errors - truth) > share * widths).sum(axis=0) for share in (1, 0.5))
    tail = ALARM / 2 / len(truth)
    least, most = binom.ppf(tail, runs, 0.05), binom.isf(tail, runs, 0.05)
    assert (least <= outside).all() and (outside <= most).all()
    assert (halved > most).all()  # a control: intervals of half the width are noticed


def figures(moment):
    """All figures with intervals, and their half widths."""
    fit = moment.least_squares(4, [0, 1, 2], 0.0)
    correlations, noise = moment.correlations([0, 1, 2, 4])
    above = np.triu_indices(4, 1)
    variances, spread, _ = moment.principal_components([0, 1, 2])
    coefficients, widths = fit.through(np.eye(4))
    return (
        np.concatenate([coefficients, correlations[above], variances]),
        np.concatenate([widths, noise[above], spread]),
    )


def test_a_column_that_the_noise_hides_has_no_correlation():
    moment = JointMoment.of(np.diag([1e-6, 1.0, 1.0]), 1e-3, 2)
    found, noise = moment.correlations([0, 1])
    assert np.isnan(found[0]).all() and np.isnan(noise[0]).all() and found[1, 1] == pytest.approx(1)


@pytest.mark.parametrize("size", [0.0, 1.0, 1e6])
def test_every_figure_of_noise_alone_is_a_number_or_missing(size):
    moment = JointMoment.of(matrix_of(size * np.random.default_rng().normal(size=15), 5), 1.0, 3)
    for value in (*figures(moment), moment.usual_ridge):
        assert not np.isinf(value).any()
    assert np.isfinite(moment.least_squares(4, [0, 1, 2], moment.usual_ridge).coefficients).all()
    assert (np.linalg.eigvalsh(moment.mean) >= -1e-9 * max(size, 1)).all()
