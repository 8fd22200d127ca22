"""In one dimension a mechanism's law can be written down: its privacy is computed, not argued."""

import math
from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import mpmath
import pytest

from dbdp.privacy import mechanisms
from dbdp.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace

COARSE_BITS = 6  # few enough values to enumerate; the claims hold for every grid


def on_a_coarse_grid(mechanism, epsilon, delta=1e-6):
    with patch.object(mechanisms, "_GRID_BITS", COARSE_BITS):
        return mechanism.calibrated(epsilon=epsilon, delta=delta, sensitivity=0.7, dimension=1)


def largest_shift(made):
    """In steps of the grid: as far as two rounded models of neighbours can be apart."""
    return math.floor(Fraction(made.sensitivity) / Fraction(made.grid))


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
def test_discrete_laplace_is_pure_to_the_last_shift(epsilon):
    made = on_a_coarse_grid(DiscreteLaplace, epsilon)
    law = pmf(lambda k: -abs(mpmath.mpf(k)) / made.steps, 3 * largest_shift(made))
    ratios = [largest_log_ratio(law, shift) for shift in (1, largest_shift(made) // 2, largest_shift(made))]
    assert max(ratios) <= epsilon * (1 + 1e-12)
    assert ratios[-1] >= 0.98 * epsilon  # no noise is wasted
    assert largest_log_ratio(law, 2 * largest_shift(made)) > 1.9 * epsilon  # twice the sensitivity would be seen


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_on_its_own_grid_discrete_laplace_wastes_nothing(epsilon):
    made = DiscreteLaplace.calibrated(epsilon=epsilon, delta=0.0, sensitivity=0.7, dimension=1)
    assert Fraction("0.999999") * Fraction(epsilon) <= Fraction(largest_shift(made), made.steps) <= Fraction(epsilon)


def gaussian_delta(made, epsilon, shift):
    law = pmf(lambda k: -(mpmath.mpf(k) ** 2) / (2 * made.steps**2), 12 * made.steps + 10 * shift)
    return hockey_stick(law, shift, epsilon)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-3), (1.0, 1e-6), (1.0, 1e-9), (4.0, 1e-5), (10.0, 1e-4)])
def test_discrete_gaussian_has_the_promised_epsilon_and_delta(epsilon, delta):
    made = on_a_coarse_grid(DiscreteGaussian, epsilon, delta)
    shift = largest_shift(made)
    assert gaussian_delta(made, epsilon, shift) <= delta
    assert gaussian_delta(made, epsilon, shift // 2) <= delta
    less = replace(made, steps=round(made.steps * 0.85))
    assert gaussian_delta(less, epsilon, shift) > delta  # less noise would break the promise
