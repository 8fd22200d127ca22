"""Mechanisms add the noise that they are charged for, to a model rounded to a grid."""

import itertools
import math
import random
from fractions import Fraction
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from goodness import ALPHA, of_reals, of_two
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pairs import pairwise
from scipy import stats
from textbook import precise_gaussian_delta

from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import (
    EpsilonDeltaDpEvent,
    GaussianDpEvent,
    Release,
    SphericalLaplaceDpEvent,
    ZCDpEvent,
)
from dbdp.privacy.accounting.renyi import gaussian_noise_multiplier
from dbdp.privacy.mechanisms import (
    MECHANISMS,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    SphericalLaplace,
    covered_sensitivity,
    grid_for,
    mechanism_named,
)

EVERY_MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=list(MECHANISMS))
GAUSSIANS = pytest.mark.parametrize("mechanism", [Gaussian, DiscreteGaussian], ids=["gaussian", "discrete_gaussian"])
promises = {"epsilon": st.floats(1e-3, 50), "sensitivity": st.floats(1e-12, 1e3), "dimension": st.integers(1, 10**6)}


def calibrated(mechanism, **changes):
    return mechanism.calibrated(**{"epsilon": 1.0, "delta": 1e-6, "sensitivity": 0.01, "dimension": 9} | changes)


def noiseless(instance, model):
    """What `release` would give if the noise were 0: the model, rounded."""
    with patch.object(type(instance), "_noise", lambda _, count: [0] * count):
        return instance.release(model)


@EVERY_MECHANISM
@given(**promises)
def test_the_sensitivity_covers_the_rounding_to_the_grid(mechanism, epsilon, sensitivity, dimension):
    instance = calibrated(mechanism, epsilon=epsilon, sensitivity=sensitivity, dimension=dimension)
    with mpmath.workprec(200):
        covered = sensitivity + instance.grid * mpmath.sqrt(dimension)
        assert covered <= instance.sensitivity <= sensitivity * 1.000001
        assert instance.grid <= sensitivity / 1024 / mpmath.sqrt(dimension)
    assert math.frexp(instance.grid)[0] == 0.5  # a power of two


@EVERY_MECHANISM
@given(data=st.data(), **promises)
def test_rounding_keeps_neighbours_within_the_sensitivity(mechanism, data, epsilon, sensitivity, dimension):
    dimension = min(dimension, 50)
    instance = calibrated(mechanism, epsilon=epsilon, sensitivity=sensitivity, dimension=dimension)
    one = data.draw(hnp.arrays(np.float64, dimension, elements=st.floats(-100, 100)))
    apart = data.draw(hnp.arrays(np.float64, dimension, elements=st.floats(-1, 1)))
    other = one + apart * 0.999999 * sensitivity / max(1.0, float(np.linalg.norm(apart)))
    steps = [
        Fraction(a) - Fraction(b) for a, b in zip(*(noiseless(instance, w).tolist() for w in (one, other)), strict=True)
    ]
    exact = [Fraction(a) - Fraction(b) for a, b in zip(one.tolist(), other.tolist(), strict=True)]
    if sum(x * x for x in exact) <= Fraction(sensitivity) ** 2:
        assert sum(x * x for x in steps) <= Fraction(instance.sensitivity) ** 2


def exact_scale(instance):
    return instance.steps * Fraction(instance.grid)


@given(delta=st.floats(1e-12, 0.1), **promises)
def test_gaussian_noise_is_at_least_the_charged_multiple(delta, epsilon, sensitivity, dimension):
    instance = calibrated(Gaussian, epsilon=epsilon, delta=delta, sensitivity=sensitivity, dimension=dimension)
    charged, covered = instance.guarantee.event.noise_multiplier, Fraction(instance.sensitivity)
    assert charged == analytic_noise_multiplier(epsilon, delta)
    assert Fraction(charged) * covered <= exact_scale(instance) <= Fraction("1.000001") * Fraction(charged) * covered


@given(delta=st.floats(1e-12, 0.1), **promises)
def test_discrete_gaussian_noise_has_the_charged_rho(delta, epsilon, sensitivity, dimension):
    instance = calibrated(DiscreteGaussian, epsilon=epsilon, delta=delta, sensitivity=sensitivity, dimension=dimension)
    needed, rho = gaussian_noise_multiplier(epsilon, delta), instance.guarantee.event.rho
    exact = (Fraction(instance.sensitivity) / exact_scale(instance)) ** 2 / 2
    assert exact <= rho <= exact * (1 + Fraction(1, 10**15))
    assert Fraction("0.99999") / (2 * Fraction(needed) ** 2) <= rho <= 1 / (2 * Fraction(needed) ** 2)


@given(**promises)
def test_laplace_noise_is_exactly_pure(epsilon, sensitivity, dimension):
    on_sphere = SphericalLaplaceDpEvent(epsilon, dimension)
    laws = (DiscreteLaplace, dimension, EpsilonDeltaDpEvent(epsilon, 0.0)), (SphericalLaplace, 1, on_sphere)
    for mechanism, stretch, event in laws:
        instance = calibrated(mechanism, epsilon=epsilon, sensitivity=sensitivity, dimension=dimension)
        with mpmath.workprec(200):
            largest = mpmath.sqrt(stretch) * instance.sensitivity / (instance.steps * mpmath.mpf(instance.grid))
            assert 0.999 * epsilon <= largest <= epsilon
        assert instance.guarantee == Release(event, epsilon, 0.0)


@pairwise(mechanism=[Gaussian, DiscreteGaussian], epsilon=[1e-3, 0.1, 1.0, 10.0, 50.0], delta=[1e-12, 1e-6, 0.01])
def test_a_gaussian_has_the_requested_guarantee(mechanism, epsilon, delta):
    guarantee = calibrated(mechanism, epsilon=epsilon, delta=delta).guarantee
    assert isinstance(guarantee.event, GaussianDpEvent if mechanism is Gaussian else ZCDpEvent)
    assert (guarantee.epsilon, guarantee.delta) == (epsilon, delta)


def gaussian_delta(instance, epsilon):
    """δ of the continuous Gaussian mechanism: Φ(Δ/2σ - εσ/Δ) - e^ε Φ(-Δ/2σ - εσ/Δ)."""
    with mpmath.workdps(60):
        ratio = mpmath.mpf(instance.steps) * instance.grid / instance.sensitivity
        return precise_gaussian_delta(epsilon, 1 / ratio)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 50.0])
def test_the_gaussian_wastes_no_noise(epsilon):
    for delta in (1e-12, 1e-6, 0.01):
        instance = calibrated(Gaussian, epsilon=epsilon, delta=delta)
        assert 0.999 * delta <= gaussian_delta(instance, epsilon) <= delta


def test_exact_noise_is_quieter_than_discrete_noise():
    """The exact gaussian is quieter than the discrete one and spherical than discrete laplace."""
    scales = {name: calibrated(mechanism).noise_scale for name, mechanism in MECHANISMS.items()}
    assert 1.04 < scales["discrete_gaussian"] / scales["gaussian"] < 1.10
    assert scales["discrete_laplace"] == pytest.approx(3 * scales["spherical_laplace"])  # √d, for d = 9
    # that is a standard deviation of √2·√d against √(d + 1), in units of the spherical scale


@given(st.floats(1e-3, 1e4), st.floats(1e-6, 1e3), st.integers(1, 10**6))
def test_a_noise_scale_of_ones_own_is_rounded_up_to_the_grid(multiplier, sensitivity, dimension):
    grid = grid_for(sensitivity, dimension, multiplier)
    covered = covered_sensitivity(sensitivity, dimension, grid)
    promised = Release(GaussianDpEvent(multiplier), 1.0, 1e-6)
    instance = Gaussian.with_scale(sensitivity=covered, grid=grid, noise_scale=multiplier * covered, guarantee=promised)
    assert (
        Fraction(multiplier * covered) <= exact_scale(instance) <= Fraction(multiplier * covered) * Fraction("1.000001")
    )
    assert (instance.sensitivity, instance.guarantee) == (covered, promised)


@EVERY_MECHANISM
def test_less_epsilon_means_more_noise(mechanism):
    scales = [calibrated(mechanism, epsilon=epsilon).noise_scale for epsilon in np.geomspace(1e-3, 50, 30)]
    assert all(more > less for more, less in itertools.pairwise(scales))


@EVERY_MECHANISM
def test_noise_grows_with_the_sensitivity_alone(mechanism):
    small, large = (calibrated(mechanism, sensitivity=s).noise_scale for s in (0.01, 1.0))
    assert large == pytest.approx(100 * small, rel=1e-6)


def released_noise(instance, model):
    return (instance.release(model) - model) / instance.noise_scale


@pytest.mark.parametrize(
    ("mechanism", "law"), [(Gaussian, stats.norm), (DiscreteGaussian, stats.norm), (DiscreteLaplace, stats.laplace)]
)
def test_released_noise_has_the_charged_scale(mechanism, law):
    model = np.random.default_rng().uniform(-5, 5, 200_000)
    noise = released_noise(calibrated(mechanism, dimension=len(model)), model)
    assert of_reals(noise, law()) > ALPHA
    assert of_reals(noise, law(scale=0.95)) < ALPHA  # it would notice more noise
    assert of_reals(noise, law(scale=1.05)) < ALPHA  # and less
    assert of_reals(noise, law(loc=0.05)) < ALPHA  # and a bias


def test_spherical_noise_has_its_scale_and_no_direction():
    instance, model = calibrated(SphericalLaplace), np.linspace(-5, 5, 9)
    noise = np.array([released_noise(instance, model) for _ in range(10_000)])
    norms = np.linalg.norm(noise, axis=1)
    assert of_reals(norms, stats.gamma(9)) > ALPHA
    assert of_reals(norms, stats.gamma(9, scale=0.93)) < ALPHA
    assert of_reals(norms, stats.gamma(9, scale=1.07)) < ALPHA
    ball = norms * np.random.default_rng().random(len(norms)) ** (1 / 9)
    assert of_reals(ball, stats.gamma(9)) < ALPHA  # noise in the ball instead of on the sphere
    for coordinate in (noise / norms[:, None]).T:
        assert of_reals(coordinate, stats.beta(4, 4, loc=-1, scale=2)) > ALPHA
    assert of_reals(noise[:, 0] / norms + 0.1, stats.beta(4, 4, loc=-1, scale=2)) < ALPHA


@EVERY_MECHANISM
def test_coordinates_have_uncorrelated_noise(mechanism):
    noise = released_noise(calibrated(mechanism, dimension=50_000), np.zeros(50_000))
    assert stats.pearsonr(noise[::2], noise[1::2]).pvalue > ALPHA
    assert stats.pearsonr(noise[::2], noise[1::2] + 0.1 * noise[::2]).pvalue < ALPHA


@EVERY_MECHANISM
@given(model=hnp.arrays(np.float64, 9, elements=st.floats(-1e6, 1e6)))
def test_a_model_is_rounded_by_half_a_grid_at_most(mechanism, model):
    instance = calibrated(mechanism)
    for value, rounded in zip(model.tolist(), noiseless(instance, model).tolist(), strict=True):
        assert (Fraction(rounded) / Fraction(instance.grid)).denominator == 1
        assert abs(Fraction(rounded) - Fraction(value)) <= Fraction(instance.grid) / 2


@EVERY_MECHANISM
def test_released_values_lie_on_the_grid_whatever_the_model(mechanism):
    """As many finite values as the model has, which stays as it is."""
    for dimension in (1, 2, 1000):
        instance, model = calibrated(mechanism, dimension=dimension), np.random.default_rng().normal(size=dimension)
        before, released = model.copy(), instance.release(model)
        assert (released.shape, released.dtype, model.tolist()) == ((dimension,), np.float64, before.tolist())
        assert all((Fraction(value) / Fraction(instance.grid)).denominator == 1 for value in released.tolist())


@EVERY_MECHANISM
def test_what_is_not_finite_is_never_released(mechanism):
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ArithmeticError, match=r"^internal error: the model is not finite$"):
            calibrated(mechanism).release(np.array([0.25, value, 0.0]))


def seeded_release(instance):
    random.seed(3)
    np.random.seed(3)
    return instance.release(np.zeros(9)).tolist()


@EVERY_MECHANISM
def test_no_seed_repeats_a_release(mechanism):
    instance = calibrated(mechanism)
    assert not set(seeded_release(instance)) & set(seeded_release(instance))


@GAUSSIANS
def test_gaussian_noise_without_a_delta_is_refused(mechanism):
    with pytest.raises(ValueError, match=r"delta = 0: .*use mechanism 'spherical_laplace'"):
        calibrated(mechanism, delta=0.0)


@EVERY_MECHANISM
def test_a_parameter_out_of_range_is_refused_by_name(mechanism):
    for name, values, limits in (
        ("epsilon", (0.0, -1.0, math.nan, math.inf), "must be positive, from 1e-09 to"),
        ("delta", (-1e-9, 1.0, math.nan, math.inf), "must be at least 0 and below 1"),
        ("sensitivity", (0.0, -1.0, 1e-300, math.nan, math.inf), "must be finite and at least 1e-200"),
    ):
        for value in values:
            with pytest.raises(ValueError, match=rf"{name} = \S+ {limits}"):
                calibrated(mechanism, **{name: value})


def test_without_a_name_the_delta_decides():
    assert mechanism_named(None, delta=1e-6) is Gaussian
    assert mechanism_named(None, delta=0.0) is SphericalLaplace
    assert all(mechanism_named(name, delta=1e-6) is instance for name, instance in MECHANISMS.items())


def test_an_unknown_mechanism_is_refused_with_the_known_ones():
    names = "gaussian, spherical_laplace, discrete_gaussian, discrete_laplace"
    with pytest.raises(ValueError, match=rf"'gauss' is unknown; choose one of {names}; did you mean 'gaussian'\?$"):
        mechanism_named("gauss", delta=1e-6)


def opendp(make, distance, scale):
    """OpenDP's own mechanism for vectors of numbers with the same noise."""
    dp = pytest.importorskip("opendp.prelude", reason="OpenDP, the second opinion, is not installed")
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    return dp, getattr(dp.m, make)(domain, getattr(dp, distance)(T=float), scale)


@pytest.mark.parametrize(
    ("mechanism", "make", "distance"),
    [
        pytest.param(Gaussian, "make_gaussian", "l2_distance", marks=pytest.mark.slow),
        (DiscreteGaussian, "make_gaussian", "l2_distance"),
        pytest.param(DiscreteLaplace, "make_laplace", "l1_distance", marks=pytest.mark.slow),
    ],
)
def test_opendp_releases_the_same_noise(mechanism, make, distance):
    instance = calibrated(mechanism, dimension=1)
    _, theirs = opendp(make, distance, instance.noise_scale)
    noise = [instance.release(np.zeros(20_000)), np.array(theirs([0.0] * 20_000))]
    assert of_two(*noise) > ALPHA
    assert of_two(noise[0] * 1.15, noise[1]) < ALPHA


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_opendp_charges_the_same(epsilon):
    gaussian, laplace = (calibrated(each, epsilon=epsilon) for each in (DiscreteGaussian, DiscreteLaplace))
    dp, theirs = opendp("make_gaussian", "l2_distance", gaussian.noise_scale)
    assert theirs.map(gaussian.sensitivity) == pytest.approx(gaussian.guarantee.event.rho, rel=1e-9)
    converted = dp.c.make_zCDP_to_approxDP(theirs).map(gaussian.sensitivity).epsilon(1e-6)
    assert converted == pytest.approx(epsilon, rel=1e-4)  # by the same conversion
    _, theirs = opendp("make_laplace", "l1_distance", laplace.noise_scale)
    assert theirs.map(3 * laplace.sensitivity) == pytest.approx(epsilon, rel=1e-6)


@EVERY_MECHANISM
def test_the_deviation_is_that_of_a_coordinate_of_the_noise(mechanism):
    """Of 2500 draws the mean square has a deviation of at most 1.6 % of itself: 12 % is more than 7 of them."""
    instance = calibrated(mechanism)
    noise = np.array([instance.release(np.zeros(9)) for _ in range(2500)])
    assert np.mean(noise**2) == pytest.approx(instance.deviation(9) ** 2, rel=0.12)
    if mechanism in (SphericalLaplace, DiscreteLaplace):
        assert np.mean(noise**2) != pytest.approx(instance.noise_scale**2, rel=0.12)  # which is not the deviation
