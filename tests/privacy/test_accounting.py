"""Charges are those of privacy.md §13, rounded up."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as reference
from hypothesis import assume, given
from hypothesis import strategies as st
from textbook import precise_gaussian_delta

from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS, MODES, Budget, order_for
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.composition import least_epsilon
from dbdp.privacy.accounting.events import (
    ADD_REMOVE,
    ComposedDpEvent,
    DisjointDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    PoissonGaussianDpEvent,
    Release,
    RepeatAndSelectDpEvent,
    ShuffledGaussianDpEvent,
    ZCDpEvent,
    pure_divergence,
    pure_mean,
)
from dbdp.privacy.accounting.renyi import best_order, conversion, gaussian_noise_multiplier

epsilons = st.floats(1e-3, 50)
deltas = st.floats(-30, -0.5).map(lambda exponent: 10.0**exponent)
SLACK = mpmath.mpf("1e-12")  # what a charge is rounded up by


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
def test_a_pure_release_costs_randomised_response(epsilon, order):
    """A pure release costs the divergence of randomised response."""
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


def test_tiny_and_huge_epsilons_are_charged_soundly():
    for epsilon, order in product((1e-12, 1e-9, 1e-6, 100.0, 1e4, 1e6), (1.01, 2.0, 20.0, 1e4)):
        exact = divergence_of_randomised_response(epsilon, mpmath.mpf(order))
        assert exact <= pure_divergence(epsilon, order) * (1 + SLACK)


@given(epsilon=epsilons, delta=deltas)
def test_a_noise_multiplier_is_sound_and_least(epsilon, delta):
    def at_best_order(multiplier):
        order = best_order(epsilon, delta)
        return order / (2 * mpmath.mpf(multiplier) ** 2) + kappa(order, delta)

    multiplier = gaussian_noise_multiplier(epsilon, delta)
    assert at_best_order(multiplier) <= epsilon
    assert at_best_order(multiplier * (1 - 1e-6)) > epsilon


def test_a_noise_multiplier_is_that_of_dp_accounting():
    orders = 1 + np.geomspace(1e-2, 1e6, 20_000)
    for epsilon, delta in product((1e-3, 0.1, 1.0, 8.0, 50.0), (1e-12, 1e-6, 1e-2)):
        more, less = (
            reference.compute_epsilon(
                orders, orders / (2 * (gaussian_noise_multiplier(epsilon, delta) * part) ** 2), delta
            )
            for part in (1.001, 0.999)
        )
        assert more[0] < epsilon < less[0]


@given(epsilon=epsilons, delta=deltas)
def test_a_renyi_budget_is_rounded_down(epsilon, delta):
    budget = Budget.of(epsilon=epsilon, delta=delta)
    first = delta - delta / 10
    exact = mpmath.mpf(epsilon) - kappa(budget.order, first)
    spendable = mpmath.mpf(budget.charge_limit) / CHARGE_UNITS
    assert exact * (1 - 3 * SLACK) - 2 * mpmath.mpf(1) / CHARGE_UNITS <= spendable <= exact
    leak = Fraction(budget.leak_limit, LEAK_UNITS)
    assert leak + Fraction(first) <= Fraction(delta) * (1 + Fraction(1, 10**15))
    assert Fraction(delta) / 10 * (1 - Fraction(1, 10**12)) - Fraction(1, LEAK_UNITS) <= leak


@given(epsilon=epsilons, delta=deltas, multiplier=st.floats(1e-2, 1e5))
def test_a_gaussian_is_charged_at_the_budgets_order_rounded_up(epsilon, delta, multiplier):
    """In gaussian mode a Gaussian costs its square, rounded up."""
    for mode in ("renyi", "gaussian"):
        budget = Budget.of(epsilon=epsilon, delta=delta, mode=mode)
        charge, leak = budget.cost(gaussian(multiplier))
        factor = Fraction(budget.order) / 2 if mode == "renyi" else 1
        exact = factor / Fraction(multiplier) ** 2 * CHARGE_UNITS
        assert exact <= charge <= exact * (1 + Fraction(1, 10**11)) + 1
        assert leak == 0


@given(epsilon=epsilons, delta=deltas, own=st.floats(1e-6, 20), leaked=st.floats(0, 0.1))
def test_a_release_of_epsilon_and_delta_leaks_its_delta(epsilon, delta, own, leaked):
    """A release known by its epsilon and delta is charged its pure part and leaks the rest."""
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
def test_decimals_fit_a_basic_budget_exactly(total, one, times):
    """As many releases fit a basic budget as their decimals say."""
    budget = Budget.of(epsilon=total, delta=0.0, mode="basic")
    charge, _ = budget.cost(pure(one))
    assert times * charge == budget.charge_limit
    assert (times + 1) * charge > budget.charge_limit
    leaking = Budget.of(epsilon=1.0, delta=1e-6, mode="basic")
    assert 10 * leaking.cost(gaussian(3.0, 0.1, 1e-7))[1] == leaking.leak_limit


TINY = [
    GaussianDpEvent(1e12),
    ZCDpEvent(1e-24),
    EpsilonDeltaDpEvent(1e-9, 1e-300),
    ExponentialMechanismDpEvent(1e-9),
    ShuffledGaussianDpEvent((0.5, 0.5), (1e12, 1e300)),
    ComposedDpEvent((GaussianDpEvent(1e12),)),
    DisjointDpEvent((GaussianDpEvent(1e12),)),
    RepeatAndSelectDpEvent(GaussianDpEvent(1e12), 1.0, 1.0, 1e-300),
]


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_free(mode):
    budget = Budget.of(epsilon=1.0, delta=1e-6, mode=mode)
    assert all(budget.cost(Release(event, 1e-9, 1e-300))[0] >= 1 for event in TINY)
    assert budget.cost(pure(0.1, 1e-30))[1] >= 1


HUGE = [
    GaussianDpEvent(1e-9),
    ZCDpEvent(1e18),
    EpsilonDeltaDpEvent(1e6, 0.9),
    ExponentialMechanismDpEvent(1e6),
    ShuffledGaussianDpEvent((1 - 1e-9, 1e-9), (1e300, 1e-9)),
    RepeatAndSelectDpEvent(EpsilonDeltaDpEvent(1e6, 0.9), 1e6, math.inf, 1.0),
    RepeatAndSelectDpEvent(GaussianDpEvent(1e-9), 1e6, 1.0, 1e-300),
]


@pytest.mark.parametrize("mode", MODES)
def test_what_reveals_everything_costs_more_than_any_budget(mode):
    for event, (epsilon, delta) in product(HUGE, ((1e-3, 1e-9), (1.0, 1e-6), (1000.0, 1e-3))):
        budget = Budget.of(epsilon=epsilon, delta=delta, mode=mode)
        charge, leaked = budget.cost(Release(event, 1e6, 0.9))
        assert charge > budget.charge_limit or leaked > budget.leak_limit


@pytest.mark.parametrize(
    ("mode", "multipliers"),
    [("renyi", {1: 4.53, 2: 6.41, 5: 10.1, 10: 14.3}), ("gaussian", {1: 4.22, 2: 5.97, 5: 9.45, 10: 13.4})],
)
def test_several_gaussians_need_the_noise_that_the_law_says(mode, multipliers):
    budget = Budget.of(epsilon=1.0, delta=1e-6 / 0.9, mode=mode)  # δ₀ = 1e-6
    for releases, multiplier in multipliers.items():
        costs = [budget.cost(gaussian(m))[0] * releases for m in (multiplier * 1.005, multiplier * 0.99)]
        assert costs[0] <= budget.charge_limit < costs[1]


def test_half_a_budget_as_pure_costs_most_of_a_renyi_one():
    """A pure release of half the budget costs most of a renyi budget and half of a basic one."""
    renyi, basic = (Budget.of(epsilon=1.0, delta=1e-6, mode=mode) for mode in ("renyi", "basic"))
    assert 0.85 < renyi.cost(pure(0.5))[0] / renyi.charge_limit < 0.95
    assert basic.cost(pure(0.5))[0] / basic.charge_limit == 0.5


@pytest.mark.parametrize("sampled", [False, True])
def test_the_order_for_a_release_fits_more_of_them(sampled):
    """Small samples and a large ε: beyond some order there is no useful divergence."""
    event = PoissonGaussianDpEvent(1e-3, 1.15, 5000) if sampled else GaussianDpEvent(5.0)
    release = Release(event, 0.9, 1e-7)
    order = order_for(release, epsilon=1.0, delta=1e-6)
    budgets = [Budget.of(epsilon=1.0, delta=1e-6, order=each) for each in (order, None)]
    chosen, usual = (each.charge_limit / each.cost(release)[0] for each in budgets)
    assert chosen > 100 * usual if sampled else chosen == pytest.approx(usual)
    assert budgets[0].order == order


def test_a_budget_that_its_mode_cannot_count_is_refused():
    for mode, epsilon, delta, message in (
        ("renyi", 1.0, 0.0, "'renyi' needs delta > 0; give a delta, or choose mode 'basic'"),
        ("renyi", 1e-9, 1e-12, "epsilon = .* is too small for mode 'renyi'; choose mode 'basic'"),
        ("laplace", 1.0, 1e-6, "mode 'laplace' is unknown; choose one of renyi, basic"),
    ):
        with pytest.raises(ValueError, match=message):
            Budget.of(epsilon=epsilon, delta=delta, mode=mode)


@pytest.mark.parametrize("mode", ["renyi", "basic"])
def test_a_promise_that_is_none_is_refused(mode):
    wrong = [(epsilon, 1e-6) for epsilon in (0.0, -1.0, math.nan, math.inf)]
    for epsilon, delta in wrong + [(1.0, delta) for delta in (1.0, -1e-9, math.nan)]:
        with pytest.raises(ValueError, match=r"(epsilon|delta) = \S+ must be"):
            Budget.of(epsilon=epsilon, delta=delta, mode=mode)


# --- all that the ledger of Gaussians adds ----------------------------------------------------------------


@given(epsilon=epsilons, delta=deltas)
def test_a_gaussian_budget_is_the_allowed_square_rounded_down(epsilon, delta):
    budget = Budget.of(epsilon=epsilon, delta=delta, mode="gaussian")
    limit = mpmath.mpf(budget.charge_limit) / CHARGE_UNITS
    first = mpmath.mpf(delta - delta / 10)
    assert precise_gaussian_delta(epsilon, mpmath.sqrt(limit)) <= first
    assert (
        precise_gaussian_delta(epsilon, mpmath.sqrt(limit * (1 + mpmath.mpf("1e-6")) + mpmath.mpf(2) / CHARGE_UNITS))
        > first
    )
    assert budget.order is None


@given(own=st.floats(1e-3, 20), leaked=st.floats(0, 0.1))
def test_in_gaussian_mode_others_cost_their_promise(own, leaked):
    """In gaussian mode what is no gaussian costs what its promise says."""
    budget = Budget.of(epsilon=1.0, delta=1e-6, mode="gaussian")
    for event in (EpsilonDeltaDpEvent(own, leaked), ZCDpEvent(1e-3)):  # G_μ does not cover a discrete Gaussian
        charge, leak = budget.cost(Release(event, own, leaked))
        assert 0 <= charge - pure_mean(own) ** 2 * CHARGE_UNITS <= 2 + 1e-3 * own**2
        assert 0 <= leak - Fraction(repr(leaked)) * LEAK_UNITS < 1


# --- every event, in the ledger of one order ---------------------------------------------------------------


@given(
    epsilon=st.floats(0.1, 10),
    multipliers=st.lists(st.floats(-1, 6).map(lambda exponent: 10.0**exponent), min_size=1, max_size=5),
)
def test_a_mixture_is_charged_its_divergence_rounded_up(epsilon, multipliers):
    budget, count = Budget.of(epsilon=epsilon, delta=1e-6), len(multipliers)
    event = ShuffledGaussianDpEvent((1 / count,) * count, tuple(multipliers))
    order = mpmath.mpf(budget.order)
    moments = [mpmath.exp(order * (order - 1) / 2 / mpmath.mpf(each) ** 2) / count for each in multipliers]
    exact = mpmath.log(mpmath.fsum(moments)) / (order - 1) * CHARGE_UNITS
    charge, leak = budget.cost(Release(event, 1.0, 1e-6))
    assert exact <= charge <= exact * (1 + 100 * SLACK) + 1.01
    assert leak == 0


@given(epsilon=st.floats(0.1, 10), own=st.floats(1e-6, 20))
def test_a_selection_is_charged_its_worst_two_points(epsilon, own):
    """A selection is charged its worst two points which are below an eighth and its pure cost."""
    budget = Budget.of(epsilon=epsilon, delta=1e-6)
    charge, leak = budget.cost(Release(ExponentialMechanismDpEvent(own), own, 0.0))
    pure_charge, _ = budget.cost(pure(own))
    eighth = math.ceil(Fraction(budget.order) * Fraction(own) ** 2 / 8 * CHARGE_UNITS)
    assert charge <= min(pure_charge, eighth * (1 + 1e-11) + 1)
    order, grown = mpmath.mpf(budget.order), mpmath.expm1(own)
    often = mpmath.expm1(order * mpmath.mpf(own))
    rare = (often - order * grown) / ((order - 1) * often * grown)  # of all chances of the larger loss the worst
    worst = (mpmath.log1p(rare * often) - order * mpmath.log1p(rare * grown)) / (order - 1) * CHARGE_UNITS
    assert worst <= charge <= worst * (1 + 10 * SLACK) + 1.01
    assert leak == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_repetitions_cap_leaks_by_the_dataset_s_promise(mode):
    """A repetitions cap leaks in proportion to what the dataset promises."""
    event = RepeatAndSelectDpEvent(GaussianDpEvent(20.0), 3.0, 1.0, 1e-12)
    leaks = [
        Budget.of(epsilon=epsilon, delta=1e-6, mode=mode).cost(Release(event, 0.5, 1e-7))[1] for epsilon in (1.0, 2.0)
    ]
    if mode == "renyi":
        assert leaks == pytest.approx([(1 + math.exp(epsilon)) * 1e6 for epsilon in (1, 2)], abs=2)
    else:
        assert leaks == [10**11] * 2  # all of its own δ


# --- add-remove ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_an_add_remove_release_costs_two_replace_one(mode):
    """A release for added and removed records costs what two of them do."""
    budget = Budget.of(epsilon=3.0, delta=1e-4, mode=mode)
    added = budget.cost(Release(GaussianDpEvent(10.0), 0.4, 1e-6, ADD_REMOVE))
    replaced = budget.cost(Release(GaussianDpEvent(5.0), 0.8, 1e-6 * (1 + math.exp(0.4)), "replace-one"))
    assert added[0] == replaced[0]
    assert 0 <= added[1] - replaced[1] <= 10
    assert budget.cost(Release(EpsilonDeltaDpEvent(0.1, 0.0), 0.1, 0.0, ADD_REMOVE)) == budget.cost(pure(0.2))


@pytest.mark.parametrize("mode", MODES)
def test_an_add_remove_release_without_form_is_refused(mode):
    """An add remove release without a replace one form is refused in every mode."""
    budget = Budget.of(epsilon=1.0, delta=1e-6, mode=mode)
    with pytest.raises(ValueError, match="an add-remove ExponentialMechanismDpEvent cannot be charged"):
        budget.cost(Release(ExponentialMechanismDpEvent(0.1), 0.1, 0.0, ADD_REMOVE))


# --- budgets at the ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_budget_is_sound_or_refused_wherever_it_is(mode):
    for epsilon, delta in product((1e-9, 1e-6, 1e-3, 700.0, 1e6), (1e-300, 1e-12, 0.5, 1 - 2.0**-53)):
        check_is_sound_or_refused(epsilon, delta, mode)


def check_is_sound_or_refused(epsilon, delta, mode):
    try:
        budget = Budget.of(epsilon=epsilon, delta=delta, mode=mode)
    except ValueError as refusal:
        assert mode != "basic" and "too small for mode" in str(refusal)
        return
    assert 0 <= budget.charge_limit < 2**63
    assert 0 <= budget.leak_limit <= Fraction(repr(delta)) * LEAK_UNITS < 2**63
    spendable, first = mpmath.mpf(budget.charge_limit) / CHARGE_UNITS, mpmath.mpf(delta - delta / 10)
    if mode == "renyi":
        assert spendable + kappa(budget.order, first) <= epsilon
    if mode == "gaussian":
        assert precise_gaussian_delta(epsilon, mpmath.sqrt(spendable)) <= first
    if mode == "zcdp":
        order = best_order(epsilon, delta - delta / 10)
        assert order * spendable + kappa(order, first) <= epsilon


@given(epsilon=epsilons, delta=deltas, more=st.floats(1.01, 10), mode=st.sampled_from(MODES))
def test_a_larger_promise_is_a_larger_budget(epsilon, delta, more, mode):
    budget = Budget.of(epsilon=epsilon, delta=delta, mode=mode)
    larger = Budget.of(epsilon=epsilon * more, delta=delta, mode=mode)
    looser = Budget.of(epsilon=epsilon, delta=min(0.9, delta * more), mode=mode)
    if mode == "renyi":  # each at its own order: compare what Gaussians may have
        assert larger.charge_limit / larger.order > budget.charge_limit / budget.order
    else:
        assert larger.charge_limit >= budget.charge_limit
    assert looser.leak_limit >= budget.leak_limit


@pytest.mark.parametrize("mode", MODES)
@given(first=st.integers(1, 200), second=st.integers(1, 200))
def test_what_does_not_fit_together_does_not_fit_one_by_one(mode, first, second):
    """Charges are rounded up each by itself, so a sum of charges is never less than the charge of the sum."""
    budget = Budget.of(epsilon=1.0, delta=1e-6, mode=mode)
    one, other = (budget.cost(gaussian(float(each), 1.0 / each, 1e-9 / each)) for each in (first, second))
    together = 1 / math.sqrt(first**-2 + second**-2)
    joint = budget.cost(gaussian(together, 1.0 / first + 1.0 / second, 1e-9 / first + 1e-9 / second))
    assert one[0] + other[0] >= joint[0] - 1
    assert one[1] + other[1] >= joint[1] - 1


# --- the best ε of one event ---------------------------------------------------------------------------------


def test_the_least_epsilon_is_that_of_the_tight_conversion():
    orders = 1 + np.geomspace(1e-3, 1e6, 20_000)
    for multiplier, delta in product((0.3, 3.0, 30.0, 300.0), (1e-12, 1e-6, 1e-2)):
        expected, _ = reference.compute_epsilon(orders, orders / (2 * multiplier**2), delta)
        result = least_epsilon(GaussianDpEvent(multiplier), delta)
        assert max(result, 0.0) == pytest.approx(expected, rel=1e-3)
        assert result >= expected or expected == 0
        assert analytic_noise_multiplier(max(result, 1e-6), delta) <= multiplier  # what the conversion says is true


# --- allowances -----------------------------------------------------------------------------------------


@given(st.floats(0.1, 20), st.sampled_from(MODES), st.floats(0.01, 1))
def test_an_allowance_has_its_part_of_the_leaks(epsilon, mode, part):
    """An allowance is the budget of its epsilon with its part of the leaks."""
    budget = Budget.of(epsilon=epsilon, delta=1e-5, mode=mode)
    own = min(part * epsilon, epsilon)
    allowance, alone = budget.allowance(own), Budget.of(epsilon=own, delta=1e-5, mode=mode)
    assert (allowance.epsilon, allowance.order, allowance.charge_limit) == (own, alone.order, alone.charge_limit)
    exact = Fraction(repr(own)) / Fraction(repr(epsilon))
    assert 0 <= exact * budget.leak_limit - allowance.leak_limit < 1
    assert allowance.leak_limit <= alone.leak_limit


@pytest.mark.parametrize("mode", MODES)
def test_all_of_epsilon_as_an_allowance_is_the_budget(mode):
    budget = Budget.of(epsilon=2.0, delta=1e-6, mode=mode)
    assert budget.allowance(2.0) == budget.allowance(2.0, budget.order) == budget


def test_in_basic_mode_an_allowance_is_a_budget_of_its_own():
    """Ten of a tenth are the whole, to the last unit."""
    budget = Budget.of(epsilon=1.0, delta=1e-6, mode="basic")
    allowance = budget.allowance(0.1)
    assert (allowance.epsilon, allowance.delta) == (0.1, 1e-7)
    own = Budget.of(epsilon=0.1, delta=1e-7, mode="basic")
    assert (allowance.charge_limit, allowance.leak_limit) == (own.charge_limit, own.leak_limit)
    assert 10 * allowance.charge_limit == budget.charge_limit


@given(st.floats(0.2, 10), deltas.filter(lambda delta: 1e-12 < delta < 1e-2), st.floats(0.01, 1), st.booleans())
def test_the_limit_of_a_renyi_allowance_converts_to_its_epsilon(epsilon, delta, part, spent):
    """At its own order, or at the dataset's, which the charges without a limit were counted at."""
    budget, own = Budget.of(epsilon=epsilon, delta=delta), min(part * epsilon, epsilon)
    try:
        allowance = budget.allowance(own, budget.order if spent else None)
    except ValueError:
        assert kappa(budget.order, mpmath.mpf("0.9") * mpmath.mpf(delta)) > own - 2e-9
        return
    implied = mpmath.mpf(allowance.charge_limit) / CHARGE_UNITS + kappa(allowance.order, mpmath.mpf("0.9") * delta)
    assert own - 2e-9 * max(1, own) <= implied <= own
    assert allowance.leak_limit <= budget.leak_limit


@pytest.mark.parametrize("part", [0.01, 0.3, 1.0])
def test_a_gaussian_allowance_is_attained_by_one_gaussian(part):
    """The hockey-stick of N(μ, 1) against N(0, 1), μ² the limit: the neighbours that attain it."""
    budget = Budget.of(epsilon=3.0, delta=1e-5, mode="gaussian")
    allowance = budget.allowance(3.0 * part)
    mean = mpmath.sqrt(mpmath.mpf(allowance.charge_limit) / CHARGE_UNITS)
    left = mpmath.mpf(1e-5) - mpmath.mpf(budget.leak_limit) / LEAK_UNITS
    assert precise_gaussian_delta(allowance.epsilon, mean) <= left
    assert precise_gaussian_delta(mpmath.mpf(allowance.epsilon) * mpmath.mpf("0.999"), mean) > left


@pytest.mark.parametrize("mode", MODES)
def test_an_allowance_beyond_the_budget_or_of_nothing_is_refused(mode):
    for own, message in ((1.1, "above the 1 of the dataset"), (0.0, "must be positive")):
        with pytest.raises(ValueError, match=message):
            Budget.of(epsilon=1.0, delta=1e-6, mode=mode).allowance(own)


def test_an_allowance_that_no_charge_fits_is_refused():
    with pytest.raises(ValueError, match=r"epsilon = 1e-06 of an allowance is too small to be counted; give more"):
        Budget.of(epsilon=1.0, delta=1e-6, mode="zcdp").allowance(1e-6)
    budget = Budget.of(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"counted at order 22.18, at which it has spent; give more, or revoke it"):
        budget.allowance(0.3, budget.order)
    assert budget.allowance(0.3).charge_limit > 0
