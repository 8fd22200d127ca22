"""Mechanisms add the noise that they are charged for, to a model rounded to a grid."""

import math
import random
from fractions import Fraction
from itertools import pairwise
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from goodness import ALPHA, of_reals
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dbdp.privacy import mechanisms
from dbdp.privacy.accounting import EpsilonDeltaDpEvent, GaussianDpEvent, gaussian_noise_multiplier
from dbdp.privacy.mechanisms import MECHANISMS, DiscreteGaussian, DiscreteLaplace, mechanism_named

EVERY_MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=list(MECHANISMS))
promises = {
    "epsilon": st.floats(1e-3, 50),
    "sensitivity": st.floats(1e-12, 1e3),
    "dimension": st.integers(1, 10**6),
}


def calibrated(mechanism, **changes):
    return mechanism.calibrated(**{"epsilon": 1.0, "delta": 1e-6, "sensitivity": 0.01, "dimension": 9} | changes)


def noiseless(mechanism, model):
    """What `release` would give if the noise were 0: the model, rounded."""
    with patch.multiple(mechanisms, discrete_gaussian=lambda *_: 0, discrete_laplace=lambda *_: 0):
        return mechanism.release(model)


@EVERY_MECHANISM
@given(**promises)
def test_the_sensitivity_covers_the_rounding_to_the_grid(mechanism, epsilon, sensitivity, dimension):
    made = calibrated(mechanism, epsilon=epsilon, sensitivity=sensitivity, dimension=dimension)
    with mpmath.workprec(200):
        covered = sensitivity + made.grid * mpmath.sqrt(dimension)
        assert covered <= made.sensitivity <= sensitivity * 1.000001
    assert math.frexp(made.grid)[0] == 0.5  # a power of two


@EVERY_MECHANISM
@given(data=st.data(), **promises)
def test_rounding_keeps_neighbours_within_the_covered_sensitivity(mechanism, data, epsilon, sensitivity, dimension):
    dimension = min(dimension, 50)
    made = calibrated(mechanism, epsilon=epsilon, sensitivity=sensitivity, dimension=dimension)
    one = data.draw(hnp.arrays(np.float64, dimension, elements=st.floats(-100, 100)))
    apart = data.draw(hnp.arrays(np.float64, dimension, elements=st.floats(-1, 1)))
    other = one + apart * 0.999999 * sensitivity / max(1.0, float(np.linalg.norm(apart)))
    steps = [
        Fraction(a) - Fraction(b) for a, b in zip(*(noiseless(made, w).tolist() for w in (one, other)), strict=True)
    ]
    exact = [Fraction(a) - Fraction(b) for a, b in zip(one.tolist(), other.tolist(), strict=True)]
    if sum(x * x for x in exact) <= Fraction(sensitivity) ** 2:
        assert sum(x * x for x in steps) <= Fraction(made.sensitivity) ** 2


@given(delta=st.floats(1e-12, 0.1), **promises)
def test_gaussian_noise_is_at_least_the_charged_multiple_of_the_sensitivity(delta, epsilon, sensitivity, dimension):
    made = calibrated(DiscreteGaussian, epsilon=epsilon, delta=delta, sensitivity=sensitivity, dimension=dimension)
    sigma, covered = made.steps * Fraction(made.grid), Fraction(made.sensitivity)
    needed, charged = gaussian_noise_multiplier(epsilon, delta), made.guarantee.event.noise_multiplier
    assert max(Fraction(needed), Fraction(charged)) * covered <= sigma
    assert sigma <= Fraction("1.000001") * Fraction(charged) * covered


@given(**promises)
def test_laplace_noise_is_exactly_pure(epsilon, sensitivity, dimension):
    made = calibrated(DiscreteLaplace, epsilon=epsilon, sensitivity=sensitivity, dimension=dimension)
    with mpmath.workprec(200):
        largest = mpmath.sqrt(dimension) * made.sensitivity / (made.steps * mpmath.mpf(made.grid))
        assert 0.999 * epsilon <= largest <= epsilon
    assert made.guarantee.event == EpsilonDeltaDpEvent(epsilon, 0.0)
    assert (made.guarantee.epsilon, made.guarantee.delta) == (epsilon, 0.0)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 50.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01])
def test_a_gaussian_promises_what_was_asked_for(epsilon, delta):
    guarantee = calibrated(DiscreteGaussian, epsilon=epsilon, delta=delta).guarantee
    assert isinstance(guarantee.event, GaussianDpEvent)
    assert (guarantee.epsilon, guarantee.delta) == (epsilon, delta)


@EVERY_MECHANISM
def test_less_epsilon_means_more_noise(mechanism):
    scales = [calibrated(mechanism, epsilon=epsilon).noise_scale for epsilon in np.geomspace(1e-3, 50, 30)]
    assert all(more > less for more, less in pairwise(scales))


@EVERY_MECHANISM
def test_noise_grows_with_the_sensitivity_alone(mechanism):
    small, large = (calibrated(mechanism, sensitivity=s).noise_scale for s in (0.01, 1.0))
    assert large == pytest.approx(100 * small, rel=1e-6)


def released_noise(made, model):
    return (made.release(model) - model) / made.noise_scale


@pytest.mark.parametrize(("mechanism", "law"), [(DiscreteGaussian, stats.norm), (DiscreteLaplace, stats.laplace)])
def test_released_noise_has_the_charged_scale(mechanism, law):
    model = np.random.default_rng().uniform(-5, 5, 200_000)
    noise = released_noise(calibrated(mechanism, dimension=len(model)), model)
    assert of_reals(noise, law()) > ALPHA
    assert of_reals(noise, law(scale=0.95)) < ALPHA  # it would notice more noise
    assert of_reals(noise, law(scale=1.05)) < ALPHA  # and less
    assert of_reals(noise, law(loc=0.05)) < ALPHA  # and a bias


@EVERY_MECHANISM
def test_coordinates_have_independent_noise(mechanism):
    noise = released_noise(calibrated(mechanism, dimension=100_000), np.zeros(100_000))
    assert stats.pearsonr(noise[::2], noise[1::2]).pvalue > ALPHA
    assert stats.pearsonr(noise[::2], noise[1::2] + 0.1 * noise[::2]).pvalue < ALPHA


@EVERY_MECHANISM
@given(model=hnp.arrays(np.float64, 9, elements=st.floats(-1e6, 1e6)))
def test_a_model_is_rounded_by_half_a_grid_at_most(mechanism, model):
    made = calibrated(mechanism)
    for value, rounded in zip(model.tolist(), noiseless(made, model).tolist(), strict=True):
        assert (Fraction(rounded) / Fraction(made.grid)).denominator == 1
        assert abs(Fraction(rounded) - Fraction(value)) <= Fraction(made.grid) / 2


@EVERY_MECHANISM
def test_released_values_lie_on_the_grid_whatever_the_model(mechanism):
    made = calibrated(mechanism, dimension=1000)
    released = made.release(np.random.default_rng().normal(size=1000))
    assert all((Fraction(value) / Fraction(made.grid)).denominator == 1 for value in released.tolist())


@EVERY_MECHANISM
def test_the_model_itself_is_not_changed(mechanism):
    model = np.linspace(-1, 1, 9)
    calibrated(mechanism).release(model)
    assert model.tolist() == np.linspace(-1, 1, 9).tolist()


def seeded_release(made):
    random.seed(3)
    np.random.seed(3)
    return made.release(np.zeros(9)).tolist()


@EVERY_MECHANISM
def test_no_seed_repeats_a_release(mechanism):
    made = calibrated(mechanism)
    assert seeded_release(made) != seeded_release(made)


def test_gaussian_noise_without_a_delta_is_refused():
    with pytest.raises(ValueError, match=r"delta = 0 .*use mechanism 'discrete_laplace'"):
        calibrated(DiscreteGaussian, delta=0.0)


@EVERY_MECHANISM
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_an_epsilon_that_is_none_is_refused(mechanism, epsilon):
    with pytest.raises(ValueError, match=f"epsilon = {epsilon} must be positive and at most 1e"):
        calibrated(mechanism, epsilon=epsilon)


@EVERY_MECHANISM
@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan, math.inf])
def test_a_delta_that_is_none_is_refused(mechanism, delta):
    with pytest.raises(ValueError, match=f"delta = {delta} must be at least 0 and below 1"):
        calibrated(mechanism, delta=delta)


@EVERY_MECHANISM
@pytest.mark.parametrize("sensitivity", [0.0, -1.0, 1e-300, math.nan, math.inf])
def test_a_sensitivity_that_is_none_is_refused(mechanism, sensitivity):
    with pytest.raises(ValueError, match=f"sensitivity = {sensitivity:g} must be finite and at least 1e-200"):
        calibrated(mechanism, sensitivity=sensitivity)


def test_without_a_name_the_delta_decides():
    assert mechanism_named(None, delta=1e-6) is DiscreteGaussian
    assert mechanism_named(None, delta=0.0) is DiscreteLaplace
    assert all(mechanism_named(name, delta=1e-6) is made for name, made in MECHANISMS.items())


def test_an_unknown_mechanism_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'gauss' is unknown; choose one of discrete_gaussian, discrete_laplace"):
        mechanism_named("gauss", delta=1e-6)
