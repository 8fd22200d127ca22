"""A record that sits in each mini-batch with a known chance: bounds for the mixture, and the plans that use it."""

import itertools
import math
from dataclasses import replace
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import a_third_quick, pairwise
from scipy import special, stats
from textbook import gaussian_delta, least_multiplier

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.perturbed_once.shared import MIXTURES
from dbdp.learning import kernels
from dbdp.learning.rows import blocks
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.calibration import Mixture, hockey_stick_multiplier, mixture_divergence, renyi_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release, ShuffledGaussianDpEvent
from dbdp.privacy.accounting.renyi import conversion

SHRUNK = 1 - 2.0**-22  # the longest stored row


# --- compression -------------------------------------------------------------------------------------

COUNT = 5000
PLACES = np.arange(COUNT) / COUNT
SHAPES = {
    "flat": np.ones(COUNT),
    "half": 1 - 0.5 * PLACES,
    "down to nothing": 1 - PLACES,
    "falling fast": np.exp(-30 * PLACES),
    "falling at once": np.exp(-3000 * PLACES),
    "two heights": np.where(PLACES < 0.01, 1.0, 0.2),
    "anything": np.random.default_rng().uniform(size=COUNT) ** 3,
}


@pairwise(epsilon=[0.1, 3.0], delta=[1e-8, 1e-3], shape=SHAPES)
def test_compression_costs_a_thousandth_at_most_and_never_less(shape, epsilon, delta):
    """Compression is never cheaper and costs less than a thousandth."""
    mixture = Mixture(np.full(COUNT, 1 / COUNT), 0.07 * SHAPES[shape])
    least = least_multiplier(epsilon, delta, mixture)
    assert least * (1 - 1e-8) <= hockey_stick_multiplier(epsilon, delta, mixture) <= least * 1.001


@pytest.mark.parametrize("shape", SHAPES)
def test_compression_costs_a_renyi_bound_a_thousandth_at_most(shape):
    mixture = Mixture(np.full(COUNT, 1 / COUNT), 0.07 * SHAPES[shape])
    computed = renyi_multiplier(0.5, 1e-6, mixture, conversion)
    with patch.object(Mixture, "compressed", lambda whole: whole):
        least = renyi_multiplier(0.5, 1e-6, mixture, conversion)
    assert least * (1 - 1e-8) <= computed <= least * 1.001


@st.composite
def long_mixtures(draw):
    count = draw(st.integers(1025, 4000))
    exponents = draw(st.sampled_from([0.0, 1.0, 30.0])) * np.random.default_rng(draw(st.integers(0, 99))).random(count)
    return Mixture(np.full(count, 1 / count), draw(st.sampled_from([1e-9, 1.0])) * np.exp(-exponents))


@pytest.mark.parametrize("shorter", [Mixture.compressed, Mixture.summary])
@given(mixture=long_mixtures())
def test_shorter_mixtures_have_no_smaller_sensitivities(shorter, mixture):
    short = shorter(mixture)
    assert short.largest == mixture.largest
    assert short.shares.sum() == pytest.approx(1, rel=1e-12)
    for threshold in np.quantile(mixture.sensitivities, [0.01, 0.3, 0.6, 0.99]):
        above = mixture.shares[mixture.sensitivities >= threshold].sum()
        assert short.shares[short.sensitivities >= threshold].sum() >= above * (1 - 1e-12)


@given(mixture=long_mixtures())
def test_how_much_shorter_mixtures_round_up(mixture):
    compressed, summary = mixture.compressed(), mixture.summary()
    assert len(summary.shares) <= 1024
    for threshold in np.quantile(mixture.sensitivities, [0.05, 0.5, 0.95]):
        above = mixture.shares[mixture.sensitivities >= threshold].sum() + 1e-12
        relative = max(threshold, mixture.largest * 2.0**-20) * (1 + 2.0**-10)
        assert compressed.shares[compressed.sensitivities > relative * (1 + 1e-9)].sum() <= above
        absolute = threshold + mixture.largest / 1024
        assert summary.shares[summary.sensitivities > absolute * (1 + 1e-9)].sum() <= above


def test_short_mixtures_are_left_alone():
    mixture = Mixture(np.full(1024, 1 / 1024), np.linspace(0, 1, 1024))
    assert mixture.compressed() is mixture is mixture.summary()


# --- divergence ----------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    multipliers=st.lists(st.floats(-2, 14).map(lambda x: 10.0**x), min_size=1, max_size=8),
    order=st.floats(-4, 4).map(lambda x: 1 + 10.0**x),
    rare=st.sampled_from([1.0, 1e-3, 1e-9]),
)
def test_the_divergence_of_a_mixture_is_proposition_3(multipliers, order, rare):
    """Also where it is next to nothing, and where the largest term is rare."""
    weights = np.ones(len(multipliers))
    weights[np.argmin(multipliers)] = rare
    shares = weights / weights.sum()
    with mpmath.workdps(80):
        a = mpmath.mpf(order)
        moments = [
            mpmath.mpf(q) * mpmath.expm1(a * (a - 1) / 2 / mpmath.mpf(m) ** 2)
            for q, m in zip(shares.tolist(), multipliers, strict=True)
        ]
        exact = mpmath.log1p(mpmath.fsum(moments)) / (a - 1)
        assert abs(mixture_divergence(shares, np.array(multipliers), order) / exact - 1) < mpmath.mpf("1e-12")


@given(order=st.floats(1.01, 1e3), multiplier=st.floats(0.1, 1e3), parts=st.integers(1, 50))
def test_equal_positions_cost_what_a_gaussian_costs(order, multiplier, parts):
    shuffled = ShuffledGaussianDpEvent((1 / parts,) * parts, (multiplier,) * parts)
    assert shuffled.divergence(order) == pytest.approx(GaussianDpEvent(multiplier).divergence(order), rel=1e-9)


# --- the true mixture of a small training ------------------------------------------------------------

ORDERS = np.array(list(itertools.permutations(range(5))))


def models_of_all_orders(release_plan, features, labels):
    """The model that the library's kernel learns from each of the 120 orders of five rows, shape (120,)."""
    computed = []
    for order in ORDERS:
        state, rows = release_plan.initial_states()[0], blocks.encode(features[order], labels[order])
        for _ in range(release_plan.learning.epochs):
            state = kernels.terminate(kernels.transition(state, rows))
        computed.append(state.result()[0])
    return np.array(computed)


SMALL = [
    ("nsgd", {"step_size": 0.5, "batch_size": 1}),
    ("nsgd", {"step_size": 0.5, "batch_size": 2}),
    ("rsgd_ar", {"step_size": 0.5, "batch_size": 1, "averaging_interval": 2}),
    ("rsgd_ar", {"step_size": 0.5, "batch_size": 2, "averaging_interval": 3}),
    ("bolt_on", {"schedule": "decreasing", "batch_size": 1, "calibration": "hockey_stick"}),
]


@pytest.mark.parametrize("loss", ["logistic", "huber_svm"])
@pytest.mark.parametrize(("algorithm", "settings_"), SMALL)
def test_a_release_of_a_random_order_is_as_private_as_planned(algorithm, settings_, loss):
    """The densities of both neighbours' releases, over all orders, in one dimension."""
    settings_ = {"epochs": 4, **settings_}
    release_plan = plan(Request(1.0, 1e-2, algorithm=algorithm, loss=loss, **settings_), Facts(5, 1))
    generator, sigma = np.random.default_rng(), release_plan.mechanism.noise_scale
    size = release_plan.learning.batch_size
    shares = np.array([min(size, 5 - begin) / 5 for begin in range(0, 5, size)])
    labels = generator.choice([-1.0, 1.0], 5)
    features = generator.choice([0.0, 0.5, SHRUNK], (5, 1))
    features[0], flipped = SHRUNK, labels * [-1, 1, 1, 1, 1]
    models = [models_of_all_orders(release_plan, features, each) for each in (labels, flipped)]
    reach = max(np.abs(each).max() for each in models) + 10 * sigma
    grid, width = np.linspace(-reach, reach, 8001, retstep=True)
    laws = [stats.norm.pdf(grid[:, None], each, sigma).mean(axis=1) for each in models]
    for p, q in (laws, laws[::-1]):
        assert np.maximum(p - math.e * q, 0).sum() * width <= 1e-2 * (1 + 1e-6)
        for epsilon in (0.1, 3.0):
            bound = float(shares @ gaussian_delta(epsilon, release_plan.sensitivity.by_position / sigma))
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() * width <= bound * (1 + 1e-5) + 1e-13
        for order in (1.5, 4.0, 20.0):
            moment = special.logsumexp(order * np.log(p) + (1 - order) * np.log(q), b=width)
            assert moment / (order - 1) <= release_plan.mechanism.guarantee.event.divergence(order) + 1e-9


def test_noise_for_a_mixture_is_too_little_for_a_known_order():
    """The plan of a mixture needs its secret: with one public order the record may sit at the worst place."""
    release_plan = plan(
        Request(
            1.0, 1e-2, algorithm="nsgd", loss="huber_svm", epochs=2, batch_size=1, regularisation=0.5, step_size=0.5
        ),
        Facts(20, 1),
    )
    worst = float(gaussian_delta(1.0, release_plan.sensitivity.exact / release_plan.mechanism.noise_scale))
    assert worst > 1.5e-2


# --- plans ---------------------------------------------------------------------------------------------

PLANNED = {
    "nsgd": ({"algorithm": "nsgd"}, 48_842, 124),
    "rsgd_ar": ({"algorithm": "rsgd_ar", "epochs": 20, "batch_size": 7}, 48_842, 124),
    "large epsilon": ({"algorithm": "nsgd", "epsilon": 20.0}, 48_842, 124),
    "contracting": ({"algorithm": "nsgd", "batch_size": 1, "regularisation": 1.0, "step_size": 0.5}, 5000, 10),
    "delta of several positions": (
        {"algorithm": "nsgd", "batch_size": 1, "regularisation": 1.0, "step_size": 0.5, "delta": 1e-3},
        5000,
        10,
    ),
    "delta of many positions": (
        {"algorithm": "nsgd", "batch_size": 1, "regularisation": 1.0, "step_size": 0.5, "delta": 3e-3, "epochs": 1},
        5000,
        10,
    ),
    "decreasing": ({"schedule": "decreasing"}, 48_842, 124),
    "square root": ({"schedule": "square_root", "exponent": 0.25}, 48_842, 124),
    "classes": ({"algorithm": "nsgd"}, 10_000, 50),
}


@pytest.mark.parametrize(("case", "calibration"), a_third_quick(list(PLANNED), list(MIXTURES)))
def test_the_noise_of_a_plan_is_sound_and_hardly_above_the_least(case, calibration):
    settings_, rows, dimension = PLANNED[case]
    request = Request(**{"epsilon": 1.0, "algorithm": "bolt_on", "delta": 1e-6, "calibration": calibration} | settings_)
    release_plan = plan(request, Facts(rows, dimension, 10 if case == "classes" else 1))
    batches = len(release_plan.sensitivity.by_position)
    shares = np.full(batches, release_plan.learning.batch_size / rows)
    shares[-1] = 1 - shares[:-1].sum()
    positions, sigma = release_plan.sensitivity.by_position, release_plan.mechanism.noise_scale
    covered = positions + release_plan.sensitivity.margin + release_plan.mechanism.grid * math.sqrt(dimension)
    assert float(shares @ gaussian_delta(request.epsilon, covered / sigma)) <= request.delta * (1 + 1e-6)
    least = MIXTURES[calibration](request.epsilon, request.delta, Mixture(shares, positions)) * positions.max()
    assert least < sigma * (1 + 1e-8)
    assert sigma < least * 1.001
    assert release_plan.mechanism.steps > 10_000  # the grid is far below the noise


@pytest.mark.parametrize("case", PLANNED)
def test_the_event_of_a_plan_claims_no_more_noise_than_there_is(case):
    settings_, rows, dimension = PLANNED[case]
    request = Request(
        **{"epsilon": 1.0, "algorithm": "bolt_on", "delta": 1e-6, "calibration": "hockey_stick"} | settings_
    )
    release_plan = plan(request, Facts(rows, dimension))
    event, sigma = release_plan.mechanism.guarantee.event, release_plan.mechanism.noise_scale
    observed, shares = sigma / np.array(event.noise_multipliers), np.array(event.shares)
    covered = release_plan.sensitivity.by_position + release_plan.sensitivity.margin
    own = np.full(len(covered), release_plan.learning.batch_size / rows)
    own[-1] = 1 - own[:-1].sum()
    for threshold in np.quantile(covered, [0, 0.1, 0.5, 0.9, 1]):
        assert shares[observed >= threshold].sum() >= own[covered >= threshold].sum() * (1 - 1e-9)
    assert len(event.shares) <= 1024
    assert Release.from_data(release_plan.mechanism.guarantee.as_data()) == release_plan.mechanism.guarantee


def test_a_mixtures_charge_is_hardly_above_all_its_positions():
    release_plan = plan(Request(1.0, 1e-6, algorithm="nsgd", batch_size=5), Facts(48_842, 124))
    budget, sigma = Budget.of(epsilon=5.0, delta=1e-5), release_plan.mechanism.noise_scale
    exact = mixture_divergence(
        np.full(9769, 1 / 9769),
        sigma / (release_plan.sensitivity.by_position + release_plan.sensitivity.margin),
        budget.order,
    )
    charge, leak = budget.cost(release_plan.mechanism.guarantee)
    assert exact * 1e9 <= charge <= exact * 1e9 * 1.005
    assert leak == 0
    worst = replace(
        release_plan.mechanism.guarantee,
        event=GaussianDpEvent(min(release_plan.mechanism.guarantee.event.noise_multipliers)),
    )
    assert charge < budget.cost(worst)[0]
