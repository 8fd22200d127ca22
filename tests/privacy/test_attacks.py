"""The power of attacks on a release: attained, and never exceeded, by the best test of explicit pairs of laws."""

import math

import numpy as np
import pytest
from scipy import stats

from dbdp.privacy import attacks
from dbdp.privacy.accounting.events import (
    ComposedDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    PaddedDpEvent,
    PoissonGaussianDpEvent,
    Release,
    RenyiDpEvent,
    SphericalLaplaceDpEvent,
    ZCDpEvent,
)
from dbdp.privacy.attacks import FALSE_ALARMS, attack_power, attack_powers

RATES = (0.0, 1e-6, *FALSE_ALARMS, 0.9, 1.0)


def best_power(first, second, rate):
    """Return the largest power at a rate, by Neyman and Pearson, of laws on cells (randomising within the last)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.where(second > 0, second / first, -1.0))
    alarms, powers = np.cumsum(first[order]), np.cumsum(second[order])
    return float(np.interp(rate, np.r_[0.0, alarms], np.r_[0.0, powers]))


def gaussian_roc(mean, rate):
    return float(stats.norm.cdf(stats.norm.ppf(rate) + mean))


@pytest.mark.parametrize("rate", RATES)
def test_gaussian_noise_and_randomised_response_attain_the_power(rate):
    gaussian = Release(GaussianDpEvent(2.0), 5.0, 1e-5)
    assert attack_power(gaussian, rate) == pytest.approx(gaussian_roc(0.5, rate), abs=2e-9)
    truth = math.e / (1 + math.e)
    response = np.array([truth, 1 - truth]), np.array([1 - truth, truth])
    pure = Release(EpsilonDeltaDpEvent(1.0, 0.0), 1.0, 0.0)
    assert attack_power(pure, rate) >= best_power(*response, rate) - 1e-12
    assert attack_power(pure, 1 - truth) == pytest.approx(truth, abs=2e-9)


@pytest.mark.parametrize("epsilon, delta", [(0.1, 0.0), (1.0, 0.01), (3.0, 1e-6), (12.0, 0.0)])
def test_a_leaky_response_attains_the_power_of_epsilon_delta(epsilon, delta):
    truth = 1 / (1 + math.exp(-epsilon))
    first = np.array([delta, 0.0, (1 - delta) * truth, (1 - delta) * (1 - truth)])
    second = np.array([0.0, delta, (1 - delta) * (1 - truth), (1 - delta) * truth])
    release = Release(EpsilonDeltaDpEvent(epsilon, delta), epsilon, delta)
    for rate in (0.0, first[3], 0.5, 1 - delta):
        assert best_power(first, second, rate) <= attack_power(release, rate)
    assert attack_power(release, 0.0) == pytest.approx(max(delta, best_power(first, second, 0.0)), abs=2e-9)
    assert attack_power(release, first[3]) == pytest.approx(best_power(first, second, first[3]), abs=2e-9)


def sampled(probability, noise):
    """Return laws on cells of one Gaussian step on a Poisson sample, with one row and with its opposite."""
    edges = np.r_[-np.inf, np.linspace(-12, 12, 200_001), np.inf]
    without = np.diff(stats.norm.cdf(edges / noise))
    return [
        (1 - probability) * without + probability * np.diff(stats.norm.cdf((edges - sign) / noise)) for sign in (1, -1)
    ]


@pytest.mark.parametrize("probability, noise", [(0.01, 1.0), (0.3, 2.0), (0.9, 0.7)])
def test_no_test_of_a_gaussian_on_a_sample_has_more_power(probability, noise):
    first, second = sampled(probability, noise)
    release = Release(PoissonGaussianDpEvent(probability, noise, 1), 50.0, 0.0)
    for rate in FALSE_ALARMS:
        assert best_power(first, second, rate) <= attack_power(release, rate) + 1e-6
    clear = Release(PoissonGaussianDpEvent(probability / 4, noise, 1), 50.0, 0.0)
    assert any(best_power(first, second, rate) > attack_power(clear, rate) for rate in FALSE_ALARMS), "no control"


@pytest.mark.parametrize("dimension", [3, 20])
def test_no_test_of_spherical_noise_has_more_power(dimension):
    """Along the difference of the centres the noise's law is that of one coordinate: a test that looks at it alone."""
    drawn = np.random.default_rng(7).normal(size=(400_000, dimension))
    drawn *= (np.random.default_rng(8).gamma(dimension, size=400_000) / np.linalg.norm(drawn, axis=1))[:, None]
    loss = np.linalg.norm(drawn - np.eye(dimension)[0], axis=1) - np.linalg.norm(drawn, axis=1)
    shifted = np.linalg.norm(drawn, axis=1) - np.linalg.norm(drawn + np.eye(dimension)[0], axis=1)
    release = Release(SphericalLaplaceDpEvent(1.0, dimension), 1.0, 0.0)
    for rate in (0.01, 0.1, 0.5):
        power = float(np.mean(shifted < np.quantile(loss, rate)))
        assert power <= attack_power(release, rate) + 0.01
    assert attack_power(release, 0.1) < math.e * 0.1, "not better than epsilon alone"


EVENTS = [
    GaussianDpEvent(1.5),
    ZCDpEvent(0.2),
    RenyiDpEvent(0.3, 9.0),
    ExponentialMechanismDpEvent(1.0),
    PaddedDpEvent(GaussianDpEvent(1.5), 1e-4),
    ComposedDpEvent((GaussianDpEvent(3.0), PoissonGaussianDpEvent(0.1, 2.0, 10))),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_the_power_rises_and_is_never_below_guessing(event):
    """The power rises with the false alarms and is never below guessing."""
    powers = [attack_power(Release(event, 3.0, 1e-5), rate) for rate in np.linspace(0, 1, 101)]
    assert powers == sorted(powers)
    assert all(power >= rate for power, rate in zip(powers, np.linspace(0, 1, 101), strict=True))
    assert powers[-1] == 1.0


def test_a_renyi_divergence_bounds_its_gaussian_closely():
    """Of many orders, zCDP's curve is that of a Gaussian, whose test has at least nine tenths of the bound."""
    for rate in (0.001, 0.05, 0.5):
        true = gaussian_roc(math.sqrt(2 * 0.05), rate)
        bound = attack_power(Release(ZCDpEvent(0.05), 9.0, 0.0), rate)
        assert true <= bound <= true * 1.6


def test_a_padded_release_leaks_at_most_its_distance():
    plain, padded = (attack_power(Release(each, 9.0, 0.0), 0.05) for each in (EVENTS[0], EVENTS[4]))
    assert plain < padded < plain + 0.05


def test_receipts_show_no_less_than_the_bound():
    release = Release(GaussianDpEvent(3.0), 2.0, 1e-5)
    for rate, power in attack_powers(release).items():
        bound = attack_power(release, float(rate))
        assert bound <= power <= bound * 1.001
    assert attacks._rounded_up(1.0) == 1.0
    assert attacks._rounded_up(0.0) == 0.0
