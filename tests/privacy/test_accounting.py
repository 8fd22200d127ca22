"""Charges are what privacy.md §13 says, rounded the safe way."""

import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as reference
from hypothesis import assume, given
from hypothesis import strategies as st

from dbdp.privacy.accounting import (
    CHARGE_UNITS,
    LEAK_UNITS,
    Budget,
    EpsilonDeltaDpEvent,
    GaussianDpEvent,
    Release,
    best_order,
    conversion,
    gaussian_noise_multiplier,
    pure_divergence,
)

epsilons = st.floats(1e-3, 50)
deltas = st.floats(-30, -0.5).map(lambda exponent: 10.0**exponent)
SLACK = mpmath.mpf("1e-12")  # what a charge is rounded up by

# δ₀ → ε: α*, B (privacy.md §13)
TABLE = [
    (1e-6, 0.1, 165.7, 0.05319),
    (1e-6, 0.5, 40.05, 0.2660),
    (1e-6, 1, 21.98, 0.5355),
    (1e-6, 2, 12.32, 1.086),
    (1e-6, 4, 7.171, 2.231),
    (1e-6, 8, 4.423, 4.654),
    (1e-9, 0.1, 292.4, 0.05180),
    (1e-9, 1, 34.87, 0.5220),
    (1e-9, 2, 18.80, 1.055),
    (1e-9, 8, 6.081, 4.456),
]


def pure(epsilon, delta=0.0):
    return Release(EpsilonDeltaDpEvent(epsilon, delta), epsilon, delta)


def gaussian(multiplier, epsilon=1.0, delta=1e-6):
    return Release(GaussianDpEvent(multiplier), epsilon, delta)


def kappa(order, delta):
    order, delta = mpmath.mpf(order), mpmath.mpf(delta)
    return mpmath.log(1 - 1 / order) - (mpmath.log(delta) + mpmath.log(order)) / (order - 1)


def divergence_of_randomised_response(epsilon, order):
    """r(ε, α), from the definition of the Rényi divergence."""
    yes, no = (1 / (1 + mpmath.exp(sign * mpmath.mpf(epsilon))) for sign in (-1, 1))
    moments = yes**order * no ** (1 - order) + no**order * yes ** (1 - order)
    return mpmath.log(moments) / (order - 1)


@pytest.fixture(autouse=True, scope="module")
def precise():
    with mpmath.workprec(300):
        yield


@pytest.mark.parametrize(("delta", "epsilon", "order", "budget"), TABLE)
def test_orders_and_budgets_are_those_of_the_reference_table(delta, epsilon, order, budget):
    best = best_order(epsilon, delta)
    assert best == pytest.approx(order, rel=5e-4)
    assert epsilon - conversion(best, delta) == pytest.approx(budget, rel=5e-4)


@given(epsilon=epsilons, delta=deltas, other=st.floats(0.5, 2))
def test_no_other_order_gives_gaussians_more(epsilon, delta, other):
    def noise_allowed(order):
        return (epsilon - kappa(order, delta)) / order

    best = best_order(epsilon, delta)
    assert noise_allowed(best) >= noise_allowed(1 + (best - 1) * other) * (1 - mpmath.mpf("1e-9"))


@given(order=st.floats(1.02, 1e4), delta=deltas, divergence=st.floats(0, 50))
def test_the_conversion_is_that_of_dp_accounting(order, delta, divergence):
    epsilon, _ = reference.compute_epsilon([order], [divergence], delta)
    assume(epsilon > 0)  # it cuts off at 0
    assert divergence + conversion(order, delta) == pytest.approx(epsilon, rel=1e-9, abs=1e-12)


@given(order=st.floats(1.001, 1e6), delta=deltas)
def test_the_conversion_is_the_formula(order, delta):
    assert abs(conversion(order, delta) - kappa(order, delta)) <= 1e-13 * (
        1 + abs(kappa(order, delta)) + 1 / (order - 1)
    )


@given(epsilon=st.floats(1e-6, 100), order=st.floats(1.001, 1e4))
def test_a_pure_release_costs_the_divergence_of_randomised_response(epsilon, order):
    exact, computed = divergence_of_randomised_response(epsilon, mpmath.mpf(order)), pure_divergence(epsilon, order)
    assert exact <= computed * (1 + SLACK)
    assert computed <= exact * (1 + 10 * SLACK) + 2e-15


@given(epsilon=st.floats(1e-6, 20), order=st.floats(1.001, 500))
def test_the_sinh_formula_of_the_law_is_the_same(epsilon, order):
    epsilon, order = mpmath.mpf(epsilon), mpmath.mpf(order)
    ratio = (mpmath.sinh(order * epsilon) - mpmath.sinh((order - 1) * epsilon)) / mpmath.sinh(epsilon)
    exact = mpmath.log(ratio) / (order - 1)
    assert mpmath.almosteq(exact, divergence_of_randomised_response(epsilon, order), rel_eps=mpmath.mpf("1e-30"))


@given(epsilon=st.floats(1e-12, 1e9), order=st.floats(1.001, 1e6))
def test_a_pure_release_costs_no_more_than_its_bounds(epsilon, order):
    assert 0 < pure_divergence(epsilon, order) <= min(epsilon, order * epsilon**2 / 2)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-9, 1e-6, 100.0, 1e4, 1e6])
@pytest.mark.parametrize("order", [1.01, 2.0, 20.0, 1e4])
def test_tiny_and_huge_epsilons_are_charged_soundly(epsilon, order):
    assert divergence_of_randomised_response(epsilon, mpmath.mpf(order)) <= pure_divergence(epsilon, order) * (
        1 + SLACK
    )


@given(epsilon=epsilons, delta=deltas)
def test_a_noise_multiplier_is_sound_and_no_larger_than_it_must_be(epsilon, delta):
    def at_best_order(multiplier):
        order = best_order(epsilon, delta)
        return order / (2 * mpmath.mpf(multiplier) ** 2) + kappa(order, delta)

    multiplier = gaussian_noise_multiplier(epsilon, delta)
    assert at_best_order(multiplier) <= epsilon
    assert at_best_order(multiplier * (1 - 1e-6)) > epsilon


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_a_noise_multiplier_is_that_of_dp_accounting(epsilon, delta):
    orders = 1 + np.geomspace(1e-2, 1e6, 20_000)

    def spent(multiplier):
        return reference.compute_epsilon(orders, orders / (2 * multiplier**2), delta)[0]

    multiplier = gaussian_noise_multiplier(epsilon, delta)
    assert spent(multiplier * 1.001) < epsilon < spent(multiplier * 0.999)


def test_one_release_of_epsilon_1_and_delta_1e_6_needs_4_53_times_the_sensitivity():
    assert gaussian_noise_multiplier(1.0, 1e-6) == pytest.approx(4.5309, abs=5e-5)


@given(epsilon=epsilons, delta=deltas)
def test_a_renyi_budget_is_rounded_down(epsilon, delta):
    budget = Budget.of(epsilon=epsilon, delta=delta)
    first = delta - delta / 10
    exact = mpmath.mpf(epsilon) - kappa(budget.order, first)
    spendable = mpmath.mpf(budget.charge_limit) / CHARGE_UNITS
    assert exact * (1 - 3 * SLACK) - 2 * mpmath.mpf(1) / CHARGE_UNITS <= spendable <= exact
    assert Fraction(budget.leak_limit, LEAK_UNITS) + Fraction(first) <= Fraction(delta) * (1 + Fraction(1, 10**15))


@given(epsilon=epsilons, delta=deltas)
def test_a_budgets_leak_is_a_tenth_of_its_delta(epsilon, delta):
    leak = Fraction(Budget.of(epsilon=epsilon, delta=delta).leak_limit, LEAK_UNITS)
    assert Fraction(delta) / 10 * (1 - Fraction(1, 10**12)) - Fraction(1, LEAK_UNITS) <= leak


@given(epsilon=epsilons, delta=deltas, multiplier=st.floats(1e-2, 1e5))
def test_a_gaussian_is_charged_at_the_budgets_order_rounded_up(epsilon, delta, multiplier):
    budget = Budget.of(epsilon=epsilon, delta=delta)
    charge, leak = budget.cost(gaussian(multiplier))
    exact = Fraction(budget.order) / (2 * Fraction(multiplier) ** 2) * CHARGE_UNITS
    assert exact <= charge <= exact * (1 + Fraction(1, 10**11)) + 1
    assert leak == 0


@given(epsilon=epsilons, delta=deltas, own=st.floats(1e-6, 20), leaked=st.floats(0, 0.1))
def test_a_release_known_by_its_epsilon_and_delta_is_charged_its_pure_part_and_leaks_the_rest(
    epsilon, delta, own, leaked
):
    budget = Budget.of(epsilon=epsilon, delta=delta)
    charge, leak = budget.cost(pure(own, leaked))
    exact = divergence_of_randomised_response(own, mpmath.mpf(budget.order)) * CHARGE_UNITS
    assert exact <= charge <= exact * (1 + 100 * SLACK) + 2
    assert 0 <= leak - Fraction(repr(leaked)) * LEAK_UNITS < 1


@given(budget=st.builds(lambda e, d: Budget.of(epsilon=e, delta=d, mode="basic"), epsilons, deltas), own=epsilons)
def test_in_basic_mode_limits_are_rounded_down_and_charges_up(budget, own):
    assert 0 <= Fraction(repr(budget.epsilon)) * CHARGE_UNITS - budget.charge_limit < 1
    assert 0 <= Fraction(repr(budget.delta)) * LEAK_UNITS - budget.leak_limit < 1
    charge, leak = budget.cost(gaussian(3.0, own, 1e-7))
    assert 0 <= charge - Fraction(repr(own)) * CHARGE_UNITS < 1
    assert leak == 10**11


@pytest.mark.parametrize(("total", "one", "times"), [(1.0, 0.1, 10), (0.3, 0.1, 3), (0.7, 0.07, 10), (1e-3, 1e-4, 10)])
def test_as_many_releases_fit_a_basic_budget_as_their_decimals_say(total, one, times):
    budget = Budget.of(epsilon=total, delta=0.0, mode="basic")
    charge, _ = budget.cost(pure(one))
    assert times * charge == budget.charge_limit
    assert (times + 1) * charge > budget.charge_limit


def test_ten_deltas_of_1e_7_fit_a_basic_delta_of_1e_6():
    budget = Budget.of(epsilon=1.0, delta=1e-6, mode="basic")
    assert 10 * budget.cost(gaussian(3.0, 0.1, 1e-7))[1] == budget.leak_limit


def test_nothing_is_free():
    budgets = [Budget.of(epsilon=1.0, delta=1e-6, mode=mode) for mode in ("renyi", "basic")]
    tiny = [gaussian(1e9, 1e-12, 1e-30), pure(1e-12, 1e-30)]
    assert all(budget.cost(release)[0] >= 1 for budget in budgets for release in tiny)
    assert all(budget.cost(pure(0.1, 1e-30))[1] >= 1 for budget in budgets)


@pytest.mark.parametrize(("releases", "multiplier"), [(1, 4.53), (2, 6.41), (5, 10.1), (10, 14.3)])
def test_several_gaussians_need_the_noise_that_the_law_says(releases, multiplier):
    budget = Budget.of(epsilon=1.0, delta=1e-6 / 0.9)  # δ₀ = 1e-6
    fits = [
        budget.cost(gaussian(m))[0] * releases <= budget.charge_limit for m in (multiplier * 1.005, multiplier * 0.99)
    ]
    assert fits == [True, False]


def test_a_pure_release_of_half_the_budget_costs_most_of_a_renyi_budget_and_half_of_a_basic_one():
    renyi, basic = (Budget.of(epsilon=1.0, delta=1e-6, mode=mode) for mode in ("renyi", "basic"))
    assert 0.85 < renyi.cost(pure(0.5))[0] / renyi.charge_limit < 0.95
    assert basic.cost(pure(0.5))[0] / basic.charge_limit == 0.5


def test_a_renyi_budget_without_a_delta_is_refused():
    with pytest.raises(ValueError, match=r"'renyi' needs delta > 0; give a delta, or choose mode 'basic'"):
        Budget.of(epsilon=1.0, delta=0.0)


def test_an_epsilon_too_small_for_the_mode_is_refused():
    with pytest.raises(ValueError, match=r"epsilon = .* is too small for mode 'renyi'; choose mode 'basic'"):
        Budget.of(epsilon=1e-9, delta=1e-12)


def test_an_unknown_mode_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"mode 'zcdp' is unknown; choose one of renyi, basic"):
        Budget.of(epsilon=1.0, delta=1e-6, mode="zcdp")


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-6), (-1.0, 1e-6), (math.nan, 1e-6), (math.inf, 1e-6), (1.0, 1.0), (1.0, -1e-9), (1.0, math.nan)],
)
@pytest.mark.parametrize("mode", ["renyi", "basic"])
def test_a_promise_that_is_none_is_refused(epsilon, delta, mode):
    with pytest.raises(ValueError, match=r"(epsilon|delta) = \S+ must be"):
        Budget.of(epsilon=epsilon, delta=delta, mode=mode)


@given(epsilon=epsilons, delta=deltas, multiplier=st.floats(1e-3, 1e6))
def test_a_release_survives_the_ledger(epsilon, delta, multiplier):
    for release in (gaussian(multiplier, epsilon, delta), pure(epsilon), pure(epsilon, delta)):
        assert Release.from_data(json.loads(json.dumps(release.as_data()))) == release


@pytest.mark.parametrize(
    ("event", "promise"),
    [
        ({"event": "GaussianDpEvent", "noise_multiplier": 0.0}, {}),
        ({"event": "GaussianDpEvent", "noise_multiplier": -3.0}, {}),
        ({"event": "GaussianDpEvent", "noise_multiplier": math.inf}, {}),
        ({"event": "GaussianDpEvent", "noise_multiplier": math.nan}, {}),
        ({"event": "EpsilonDeltaDpEvent", "epsilon": -1.0, "delta": 0.0}, {}),
        ({"event": "EpsilonDeltaDpEvent", "epsilon": 1.0, "delta": 1.0}, {}),
        ({"event": "NoEvent"}, {}),
        ({"event": "GaussianDpEvent", "noise_multiplier": 3.0}, {"epsilon": 0.0}),
        ({"event": "GaussianDpEvent", "noise_multiplier": 3.0}, {"epsilon": math.nan}),
        ({"event": "GaussianDpEvent", "noise_multiplier": 3.0}, {"delta": -1e-6}),
    ],
)
def test_what_describes_no_release_is_refused(event, promise):
    with pytest.raises(ValueError, match=r"must be|cannot be charged"):
        Release.from_data({"event": event, "epsilon": 1.0, "delta": 1e-6} | promise)
