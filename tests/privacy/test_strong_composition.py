"""Advanced composition, and the ρ of an (ε, δ), against the worst mechanisms."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from textbook import gaussian_delta

from dbdp.privacy.accounting.composition import rho_of, strong_epsilon, strong_share
from dbdp.privacy.accounting.renyi import conversion, gaussian_noise_multiplier

slacks = st.floats(-15, -1).map(lambda exponent: 10.0**exponent)


def responses_delta(own, count, epsilon):
    """δ(ε) of `count` randomised responses: no pure releases compose to more (Kairouz, Oh & Viswanath 2015)."""
    yes = stats.binom(count, 1 / (1 + math.exp(-own)))
    loss = own * (2 * np.arange(count + 1) - count)
    observed = loss > epsilon
    return float(np.exp(yes.logpmf(np.arange(count + 1)[observed]) + np.log(-np.expm1(epsilon - loss[observed]))).sum())


def responses_epsilon(own, count, slack):
    """The least ε at which δ(ε) is at most the slack."""
    low, high = 0.0, own * count
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if responses_delta(own, count, middle) > slack else (low, middle)
    return high


@pytest.mark.parametrize(("own", "count"), [(1.0, 1), (0.1, 30), (0.01, 1000), (0.03, 10_000), (0.5, 200), (2.0, 10)])
def test_no_pure_releases_exceed_strong_composition(own, count):
    for slack in (1e-2, 1e-6, 1e-12):
        claimed = strong_epsilon(own, count, slack)
        assert responses_delta(own, count, claimed) <= slack


@pytest.mark.parametrize(("own", "count", "slack"), [(0.01, 1000, 1e-12), (0.001, 10_000, 1e-9)])
def test_many_releases_lose_nearly_that_much(own, count, slack):
    assert responses_epsilon(own, count, slack) > 0.75 * strong_epsilon(own, count, slack)


def test_half_of_the_root_would_be_too_small():
    """The test above could have seen it: neither is what the responses tell."""
    own, count, slack = 0.01, 1000, 1e-12
    root = math.sqrt(2 * count * math.log(1 / slack)) * own
    assert responses_delta(own, count, strong_epsilon(own, count, slack) - root) > slack
    assert responses_delta(own, count, strong_epsilon(own, count, slack) - root / 2) > slack


@given(own=st.floats(1e-6, 3), count=st.integers(1, 10**6), slack=slacks)
def test_strong_composition_is_the_published_formula_rounded_up(own, count, slack):
    with mpmath.workdps(50):
        e, s = mpmath.mpf(own), mpmath.mpf(slack)
        exact = count * e * mpmath.expm1(e) + mpmath.sqrt(2 * count * mpmath.log(1 / s)) * e
        assert exact <= strong_epsilon(own, count, slack) <= exact * (1 + mpmath.mpf("1e-11"))


@given(epsilon=st.floats(1e-6, 100), count=st.integers(1, 10**7), slack=slacks)
def test_the_share_is_the_largest_that_composes_to_the_promise(epsilon, count, slack):
    share = strong_share(epsilon, count, slack)
    assert strong_epsilon(share, count, slack) <= epsilon
    assert strong_epsilon(math.nextafter(share, 1e9), count, slack) > epsilon


def test_leaks_add_up_beside_the_slack():
    """Each of ten releases leaks with probability δ, else it is a randomised response: exact, by enumeration."""
    own, count, leak, slack = 0.4, 10, 3e-3, 1e-2
    epsilon = strong_epsilon(own, count, slack)
    none_leaks = (1 - leak) ** count
    delta = 1 - none_leaks + none_leaks * responses_delta(own, count, epsilon)
    assert count * leak * 0.9 < delta <= count * leak + slack
    assert delta > slack  # the slack alone is too little


@pytest.mark.parametrize(
    ("epsilon", "count", "slack"),
    [
        (0.0, 1, 0.1),
        (-1.0, 1, 0.1),
        (math.nan, 1, 0.1),
        (1.0, 0, 0.1),
        (1.0, 1, 0.0),
        (1.0, 1, 1.0),
        (math.inf, 1, 0.1),
    ],
)
def test_what_cannot_be_composed_is_refused(epsilon, count, slack):
    for function in (strong_epsilon, strong_share):
        with pytest.raises(ValueError, match=r"epsilon = .* must be positive, count = .* and slack = "):
            function(epsilon, count, slack)


def test_a_large_epsilon_composes_to_a_number():
    assert strong_epsilon(1e5, 3, 0.1) == math.inf
    assert strong_epsilon(strong_share(1e6, 3, 0.1), 3, 0.1) <= 1e6


# --- the ρ of a promise ---------------------------------------------------------------------------------

promises = {"epsilon": st.floats(-3, 2).map(lambda exponent: 10.0**exponent), "delta": slacks}


@given(**promises)
def test_rho_converts_to_the_promise_and_no_larger_one_does(epsilon, delta):
    rho = rho_of(epsilon, delta)
    orders = 1 + np.geomspace(1e-4, 1e8, 4000)
    converted = np.array([conversion(float(order), delta) for order in orders])
    assert (orders * rho * 0.999 + converted).min() <= epsilon  # the grid is not quite at the best order
    assert (orders * rho * 1.001 + converted).min() > epsilon


@given(**promises)
def test_rho_is_that_of_the_gaussian_that_just_keeps_the_promise(epsilon, delta):
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    assert rho_of(epsilon, delta) == pytest.approx(1 / (2 * multiplier**2), rel=1e-9)


@given(**promises)
def test_a_gaussian_of_that_rho_keeps_the_promise_exactly(epsilon, delta):
    assert gaussian_delta(epsilon, math.sqrt(2 * rho_of(epsilon, delta))) <= delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (1.0, 1e-12), (0.1, 1e-9), (8.0, 1e-6)])
def test_a_gaussian_of_a_little_more_breaks_it(epsilon, delta):
    assert gaussian_delta(epsilon, 1.09 * math.sqrt(2 * rho_of(epsilon, delta))) > delta


@given(**promises)
def test_rho_is_above_that_of_bun_and_steinke(epsilon, delta):
    logarithm = math.log(1 / delta)
    theirs = (math.sqrt(logarithm + epsilon) - math.sqrt(logarithm)) ** 2  # ρ + 2√(ρ ln(1/δ)) = ε
    assert rho_of(epsilon, delta) > theirs * 1.01


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (1.0, 0.0), (math.nan, 1e-6), (1.0, 1.0), (1e9, 1e-6)])
def test_a_promise_that_is_none_has_no_rho(epsilon, delta):
    with pytest.raises(ValueError, match=r"epsilon = |delta = "):
        rho_of(epsilon, delta)
