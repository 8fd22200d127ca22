"""In one dimension a mechanism's law can be written down: its privacy is computed, not argued."""

import math
from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import mpmath
import pytest
from pairs import others_slow

from dbdp.privacy import mechanisms
from dbdp.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, SphericalLaplace

COARSE_BITS = 6  # few enough values to enumerate; the claims hold for every grid


def on_a_coarse_grid(mechanism, epsilon, delta=1e-6):
    with patch.object(mechanisms, "_GRID_BITS", COARSE_BITS):
        return mechanism.calibrated(epsilon=epsilon, delta=delta, sensitivity=0.7, dimension=1)


def largest_shift(instance):
    """In steps of the grid: as far as two rounded models of neighbours can be apart."""
    return math.floor(Fraction(instance.sensitivity) / Fraction(instance.grid))


def pmf(log_weight, reach):
    weights = {k: mpmath.exp(log_weight(k)) for k in range(-reach, reach + 1)}
    total = mpmath.fsum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def largest_log_ratio(law, shift):
    return max(abs(mpmath.log(probability / law[k + shift])) for k, probability in law.items() if k + shift in law)


def hockey_stick(law, shift, epsilon):
    """sup_S P(S) - e^ε Q(S) for Q = P shifted."""
    factor = mpmath.exp(epsilon)
    return mpmath.fsum(max(probability - factor * law.get(k - shift, 0), 0) for k, probability in law.items())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_on_its_own_grid_discrete_laplace_wastes_nothing(epsilon):
    instance = DiscreteLaplace.calibrated(epsilon=epsilon, delta=0.0, sensitivity=0.7, dimension=1)
    assert (
        Fraction("0.999999") * Fraction(epsilon)
        <= Fraction(largest_shift(instance), instance.steps)
        <= Fraction(epsilon)
    )


def rounded(tail, reach):
    """Law of round(z) for a symmetric z with P(z > x) = tail(x)."""
    cells = {k: tail(k - mpmath.mpf(1) / 2) - tail(k + mpmath.mpf(1) / 2) for k in range(1, reach + 1)}
    return {0: 1 - 2 * tail(mpmath.mpf(1) / 2)} | cells | {-k: cell for k, cell in cells.items()}


LAWS = {
    DiscreteLaplace: lambda steps, reach: pmf(lambda k: -abs(mpmath.mpf(k)) / steps, reach),
    SphericalLaplace: lambda steps, reach: rounded(lambda x: mpmath.exp(-x / steps) / 2, reach),
}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("mechanism", LAWS)
def test_laplace_noise_is_pure_to_the_last_shift(mechanism, epsilon):
    instance = on_a_coarse_grid(mechanism, epsilon)
    furthest = largest_shift(instance)
    law = LAWS[mechanism](instance.steps, 3 * furthest)
    ratios = [largest_log_ratio(law, shift) for shift in (1, furthest // 2, furthest)]
    assert max(ratios) <= epsilon * (1 + 1e-12)
    assert ratios[-1] >= 0.98 * epsilon  # no noise is wasted
    assert largest_log_ratio(law, 2 * furthest) > 1.9 * epsilon  # twice the sensitivity would be seen


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_noise_in_the_ball_instead_of_on_the_sphere_is_not_pure(epsilon):
    instance = on_a_coarse_grid(SphericalLaplace, epsilon)

    def tail(x):  # of a uniform number in [-1, 1] times the norm
        return (mpmath.exp(-x / instance.steps) - x / instance.steps * mpmath.e1(x / instance.steps)) / 2

    law = rounded(tail, 3 * largest_shift(instance))
    assert largest_log_ratio(law, largest_shift(instance)) > 1.1 * epsilon


def discrete_law(instance, reach):
    return pmf(lambda k: -(mpmath.mpf(k) ** 2) / (2 * instance.steps**2), reach)


def rounded_law(instance, reach):
    return rounded(lambda x: mpmath.ncdf(-x / instance.steps), reach)


def gaussian_delta(instance, epsilon, shift):
    law = rounded_law if isinstance(instance, Gaussian) else discrete_law
    return hockey_stick(law(instance, 12 * instance.steps + 10 * shift), shift, epsilon)


GAUSSIAN_CLAIMS = [(0.3, 1e-3), (1.0, 1e-6), (1.0, 1e-9), (4.0, 1e-5), (10.0, 1e-4)]


@pytest.mark.parametrize(("epsilon", "delta"), others_slow(GAUSSIAN_CLAIMS, (4.0, 1e-5), (10.0, 1e-4)))
@pytest.mark.parametrize("mechanism", [Gaussian, DiscreteGaussian])
def test_a_gaussian_has_the_promised_epsilon_and_delta(mechanism, epsilon, delta):
    instance = on_a_coarse_grid(mechanism, epsilon, delta)
    shift = largest_shift(instance)
    assert gaussian_delta(instance, epsilon, shift) <= delta
    assert gaussian_delta(instance, epsilon, shift // 2) <= delta
    less = replace(instance, steps=round(instance.steps * 0.85))
    assert gaussian_delta(less, epsilon, shift) > delta  # less noise would break the promise


@pytest.mark.parametrize("epsilon", others_slow([1.0, 4.0], 1.0))
def test_the_rounded_gaussian_needs_nearly_all_of_its_noise(epsilon):
    instance = on_a_coarse_grid(Gaussian, epsilon)
    assert gaussian_delta(instance, epsilon, largest_shift(instance)) > 0.5e-6
    less = replace(instance, steps=round(instance.steps * 0.97))
    assert gaussian_delta(less, epsilon, largest_shift(instance)) > 1e-6
