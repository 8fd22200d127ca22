"""Exact curves against quadratures of the densities themselves, which know neither Bessel functions nor corners."""

import math
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs import each_value_quick
from scipy import stats
from textbook import gaussian_delta

from dbdp.privacy.accounting import curves
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.events import (
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    Release,
    SphericalLaplaceDpEvent,
    pure_divergence,
)

DIMENSIONS = [2, 3, 10, 105, 785]
EPSILONS = [0.01, 1.0, 5.0]


@lru_cache(maxsize=8)
def losses(shift, dimension, radii=4001, angles=800):
    """Losses ln p/q at points of q ∝ e^(-‖z‖), p shifted, and masses of q: by radius, and angle with the shift."""
    law, wide = stats.gamma(dimension), min(math.pi / 2, 12 / math.sqrt(dimension))
    steps, angle = np.linspace(0, 1, radii + 1)[1:, None], np.linspace(-wide, wide, angles) + math.pi / 2
    longest, least = law.isf(1e-17) + 12 * shift, law.ppf(1e-17) if dimension > 10 else 0.0
    r = least + (longest - least) * steps**3  # finer near the two centres, where a plane has most of its divergence
    apart = np.sqrt(np.maximum(r**2 - 2 * r * shift * np.cos(angle) + shift**2, 0))
    ends = np.where(np.arange(angles) % (angles - 1) == 0, 0.5, 1.0)  # a trapezoid rule
    masses = law.pdf(r) * steps**2 * ends * np.sin(angle) ** (dimension - 2)
    return (r - apart).ravel(), (masses / masses.sum()).ravel()


def moment(function, shift, dimension):
    loss, masses = losses(shift, dimension)
    return float(np.sum(masses * function(loss)))


def quadrature(shift, dimension, order):
    return math.log(moment(lambda loss: np.exp(order * loss), shift, dimension)) / (order - 1)


@pytest.mark.parametrize(
    ("epsilon", "dimension", "order"), each_value_quick(EPSILONS, DIMENSIONS, [1.5, 4.0, 10.3, 30.0])
)
def test_spherical_noise_costs_its_divergence_and_no_more(epsilon, dimension, order):
    exact = quadrature(epsilon, dimension, order)
    charge = SphericalLaplaceDpEvent(epsilon, dimension).divergence(order)
    assert charge == pytest.approx(exact, rel=1e-3)  # the quadrature is not better near the two centres
    assert charge < pure_divergence(epsilon, order)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_smaller_shift_is_no_less_private(dimension):
    """And a longer one would be noticed."""
    charge = SphericalLaplaceDpEvent(1.0, dimension).divergence(10.3)
    costs = [quadrature(shift, dimension, 10.3) for shift in (0.2, 0.5, 0.9, 0.99)]
    assert costs == sorted(costs)
    assert costs[-1] < charge < quadrature(1.01, dimension, 10.3)


@pytest.mark.parametrize(
    ("dimension", "charge"), [(3, 0.725), (10, 0.399), (55, 0.0923), (105, 0.0488), (785, 0.00656)]
)
def test_the_charges_of_the_review_are_met(dimension, charge):
    event = SphericalLaplaceDpEvent(1.0, dimension)
    assert event.divergence(10.3) == pytest.approx(charge, rel=2e-3)
    assert EpsilonDeltaDpEvent(1.0, 0.0).divergence(10.3) == pytest.approx(0.956, abs=0.011)


@given(epsilon=st.floats(1e-3, 20), order=st.floats(1.01, 100))
def test_on_a_line_it_is_laplace_noise(epsilon, order):
    """By its closed form, and at least as large: rounded up."""
    first = (order - 1) * epsilon + math.log(order / (2 * order - 1))
    second = -order * epsilon + math.log((order - 1) / (2 * order - 1))
    charge = SphericalLaplaceDpEvent(epsilon, 1).divergence(order)
    assert charge == pytest.approx(np.logaddexp(first, second) / (order - 1), rel=1e-6, abs=1e-9)


@given(epsilon=st.floats(1e-9, 1e6), dimension=st.integers(1, 10**6), order=st.floats(1.001, 1e4))
def test_no_number_costs_more_than_a_pure_release(epsilon, dimension, order):
    event, pure = SphericalLaplaceDpEvent(epsilon, dimension), EpsilonDeltaDpEvent(epsilon, 0.0)
    assert 0 < event.divergence(order) <= pure.divergence(order)
    assert 0 < event.gaussian_square() <= pure.gaussian_square()
    assert 0 < event.concentration() <= pure.concentration()


@pytest.mark.parametrize(("epsilon", "dimension"), each_value_quick(EPSILONS, [3, 4, 10, 105, 785]))
def test_spherical_noise_counts_for_a_gaussian_of_its_variation(epsilon, dimension):
    """Which is as telling at γ = 1, and more at every other; that of a hundredth less is not."""
    square = SphericalLaplaceDpEvent(epsilon, dimension).gaussian_square()
    levels = np.linspace(-0.99 * epsilon, 0.99 * epsilon, 41)
    lost = [moment(lambda x, c=c: np.maximum(np.exp(x) - math.exp(c), 0), epsilon, dimension) for c in levels]
    room = 2e-4 * gaussian_delta(0.0, math.sqrt(square))  # of the quadrature
    assert all(each <= gaussian_delta(c, math.sqrt(square)) + room for each, c in zip(lost, levels, strict=True))
    assert lost[20] == pytest.approx(gaussian_delta(0.0, math.sqrt(square)), rel=1e-3)
    assert lost[20] > gaussian_delta(0.0, math.sqrt(0.98 * square))


@pytest.mark.parametrize(("epsilon", "dimension"), each_value_quick(EPSILONS, DIMENSIONS))
def test_its_rho_is_the_mean_of_the_loss(epsilon, dimension):
    mean = moment(lambda loss: np.exp(loss) * loss, epsilon, dimension)
    assert SphericalLaplaceDpEvent(epsilon, dimension).concentration() == pytest.approx(mean, rel=2e-3)


@pytest.mark.parametrize(("epsilon", "dimension", "order"), each_value_quick(EPSILONS, DIMENSIONS, [1.5, 10.3, 30.0]))
def test_a_spherical_gain_is_the_positive_part_of_its_moment(epsilon, dimension, order):
    gained = moment(lambda x: np.exp(x) * np.maximum(np.expm1((order - 1) * x), 0), epsilon, dimension)
    result = math.expm1(curves.spherical_gain((epsilon, epsilon), dimension, order)) / 2
    assert result == pytest.approx(gained, rel=2e-3)


@given(mean=st.floats(1e-3, 1), order=st.floats(1.01, 30))
def test_a_gaussian_gain_is_the_positive_part_of_its_moment(mean, order):
    x = np.linspace(0, mean**2 / 2 + (order - 1) * mean**2 + 40 * mean, 200_001)
    log_density = -((x - mean**2 / 2) ** 2) / (2 * mean**2) - math.log(mean * math.sqrt(2 * math.pi))
    gained = np.trapezoid(np.exp(log_density + (order - 1) * x) - np.exp(log_density), x)
    assert curves.gaussian_gain((mean,) * 3, order) == pytest.approx(math.log1p(3 * gained), rel=1e-4)


@pytest.mark.parametrize("mode", ["renyi", "gaussian", "zcdp"])
def test_spherical_noise_in_many_dimensions_costs_little(mode):
    """A pure release in many dimensions costs a small part of what randomised response does.

    Before and after, in every mode in which they differ.
    """
    budget = Budget.of(epsilon=2.0, delta=1e-5, mode=mode)
    before = budget.cost(Release(EpsilonDeltaDpEvent(1.0, 0.0), 1.0, 0.0))
    after = budget.cost(Release(SphericalLaplaceDpEvent(1.0, 105), 1.0, 0.0))
    assert after[0] < before[0] / 15
    assert before[1] == after[1] == 0


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 30.0])
def test_the_rho_of_a_bounded_range_is_nearly_tight(epsilon):
    """The rho of a bounded range is above every order and by 9 percent at most."""
    event = ExponentialMechanismDpEvent(epsilon)
    most = max(event.divergence(order) / order for order in 1 + np.geomspace(1e-4, 1e3, 60))
    assert most <= event.concentration() <= most * 1.09
    assert event.concentration() <= epsilon**2 / 8 * (1 + 1e-9)
