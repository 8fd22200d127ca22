"""Budgets in ρ: each event's ρ bounds its Rényi divergence at every order at once, and ρ implies the budget's ε."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st

from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS, Budget
from dbdp.privacy.accounting.events import (
    ComposedDpEvent,
    DisjointDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    PerturbedMinimumDpEvent,
    PoissonGaussianDpEvent,
    Release,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    ShuffledGaussianDpEvent,
    SphericalLaplaceDpEvent,
    ZCDpEvent,
    pure_concentration,
)
from dbdp.privacy.accounting.renyi import best_order, conversion, epsilon_of

ORDERS = 1 + np.geomspace(1e-5, 1e4, 100)
MIXTURE = ShuffledGaussianDpEvent((0.9, 0.1), (8.0, 2.0))
KNOWN = [
    GaussianDpEvent(0.3),
    GaussianDpEvent(30.0),
    ZCDpEvent(0.2),
    *(EpsilonDeltaDpEvent(epsilon, 1e-6) for epsilon in (1e-3, 0.5, 3.0, 40.0)),
    *(ExponentialMechanismDpEvent(epsilon) for epsilon in (1e-3, 0.5, 3.0, 40.0)),
    *(SphericalLaplaceDpEvent(epsilon, d) for epsilon in (1e-3, 0.5, 3.0, 40.0) for d in (1, 2, 3, 10, 785)),
    PoissonGaussianDpEvent(1.0, 2.0, 10),
    *(PerturbedMinimumDpEvent(GaussianDpEvent(3.0), k, 0.01, (0.5 / k, 1 / k), 1.0, 1e-6) for k in (1, 3)),
    MIXTURE,
    ComposedDpEvent((GaussianDpEvent(2.0), EpsilonDeltaDpEvent(0.5, 0.0), MIXTURE)),
    SelfComposedDpEvent(ExponentialMechanismDpEvent(0.5), 7),
    DisjointDpEvent((GaussianDpEvent(2.0), EpsilonDeltaDpEvent(0.9, 0.0))),
]
UNKNOWN = [PoissonGaussianDpEvent(0.1, 2.0, 10), RepeatAndSelectDpEvent(GaussianDpEvent(3.0), 2.0, 1.0, 0.0)]
UNKNOWN += [
    ComposedDpEvent((GaussianDpEvent(3.0), UNKNOWN[0])),
    DisjointDpEvent((UNKNOWN[1], GaussianDpEvent(3.0))),
    SelfComposedDpEvent(UNKNOWN[0], 2),
]


def name(event):
    return type(event).__name__


@pytest.mark.parametrize("event", KNOWN, ids=name)
def test_the_divergence_is_below_order_times_rho(event):
    rho = event.concentration()
    ratios = np.array([event.divergence(order) / order for order in ORDERS])
    assert ratios.max() <= rho * (1 + 1e-6)  # near α = 1 a divergence is computed to so many digits
    if isinstance(event, ShuffledGaussianDpEvent | ComposedDpEvent):  # each of its own mechanism's worst order
        return
    loose = isinstance(event, PerturbedMinimumDpEvent | ExponentialMechanismDpEvent | SelfComposedDpEvent)
    assert ratios.max() >= rho * (0.85 if loose else 1 - 1e-4)


@given(exponent=st.floats(-6, 2))
def test_a_pure_release_has_the_rho_of_randomised_response(exponent):
    """From the definition of the divergence, in many digits: no order asks for more, and α → 1 for as much."""
    epsilon = 10.0**exponent
    rho = pure_concentration(epsilon)
    assert rho <= epsilon**2 / 2
    with mpmath.workprec(200):
        yes, no = (1 / (1 + mpmath.exp(sign * mpmath.mpf(epsilon))) for sign in (-1, 1))
        ratios = []
        for excess in (1e-7, 1e-3, 0.1, 1.0, 10.0, 1000.0):
            order = 1 + mpmath.mpf(excess)
            moments = yes**order * no ** (1 - order) + no**order * yes ** (1 - order)
            ratios.append(mpmath.log(moments) / (order - 1) / order)
        assert max(ratios) <= rho * (1 + 1e-12)
        assert ratios[0] >= rho * (1 - 1e-4)


def test_a_selection_costs_a_quarter_of_a_pure_release():
    """Permute and flip costs what a pure release does and a selection a quarter of it."""
    assert ExponentialMechanismDpEvent(0.1).concentration() == pytest.approx(pure_concentration(0.1) / 4, rel=1e-3)
    assert 0.9 * pure_concentration(40.0) < ExponentialMechanismDpEvent(40.0).concentration() < pure_concentration(40.0)


@pytest.mark.parametrize("event", UNKNOWN, ids=name)
def test_an_event_without_a_rho_counts_for_its_promise(event):
    assert event.concentration() is None
    promise = EpsilonDeltaDpEvent(0.7, 1e-7)
    assert Release(event, 0.7, 1e-7).as_concentrated() == (pure_concentration(0.7), promise)
    budget = Budget.of(epsilon=None, rho=1.0, delta=1e-5)
    assert budget.cost(Release(event, 0.7, 1e-7)) == budget.cost(Release(promise, 0.7, 1e-7))


def test_a_gaussian_is_charged_half_its_inverse_square():
    budget = Budget.of(epsilon=None, rho=0.5, delta=1e-5)
    assert budget.cost(Release(GaussianDpEvent(2.0), 1.0, 1e-6)) == (125_000_001, 0)  # rounded up
    assert 4 * budget.cost(Release(ZCDpEvent(0.124999999), 1.0, 1e-6))[0] <= budget.charge_limit


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.1, 1.0, 30.0])
def test_rho_implies_the_epsilon_that_dp_accounting_says(rho, delta):
    accountant = RdpAccountant(1 + np.geomspace(1e-3, 1e6, 5000))
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    theirs, ours = accountant.get_epsilon(delta), epsilon_of(rho, delta)
    assert max(ours, 0.0) == pytest.approx(theirs, rel=1e-4, abs=1e-9)
    assert ours <= theirs * (1 + 1e-9) + 1e-11  # the best order, not one of a grid


@given(epsilon=st.floats(1e-2, 20), exponent=st.floats(-12, -1))
def test_a_budget_of_epsilon_has_the_largest_rho(epsilon, exponent):
    """A budget of epsilon has the largest rho and that rho implies the epsilon."""
    delta = 10.0**exponent
    budget = Budget.of(epsilon=epsilon, delta=delta, mode="zcdp")
    rho = budget.charge_limit / CHARGE_UNITS
    first = delta - delta / 10
    with mpmath.workprec(200):
        order = mpmath.mpf(best_order(epsilon, first))
        kappa = mpmath.log(1 - 1 / order) - (mpmath.log(first) + mpmath.log(order)) / (order - 1)
        assert order * budget.charge_limit / CHARGE_UNITS + kappa <= epsilon
    more = rho * (1 + 1e-6) + 2 / CHARGE_UNITS
    assert all(more * order + conversion(float(order), first) > epsilon for order in ORDERS)
    if rho > 1e-3:  # else a unit is much of it
        assert epsilon_of(rho, first) == pytest.approx(epsilon, rel=1e-5)


def test_a_budget_of_rho_holds_the_epsilon_that_it_implies():
    budget = Budget.of(epsilon=None, rho=0.5, delta=1e-6)
    assert (budget.mode, budget.order, budget.charge_limit) == ("zcdp", None, CHARGE_UNITS // 2)
    assert budget.leak_limit == LEAK_UNITS // 10**7
    assert budget.epsilon == epsilon_of(0.5, 9e-7)
    again = Budget.of(epsilon=budget.epsilon, delta=1e-6, mode="zcdp")
    assert abs(again.charge_limit - budget.charge_limit) <= 1
    assert Budget.of(epsilon=None, rho=0.5, delta=1e-6, mode="zcdp") == budget


def test_a_small_rho_promises_a_positive_epsilon():
    assert Budget.of(epsilon=None, rho=1e-9, delta=0.5).epsilon == 1e-9


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"epsilon": 1.0, "rho": 0.5, "delta": 1e-6}, "epsilon = 1.0 and rho = 0.5 exclude each other in a budget"),
        ({"epsilon": None, "rho": 0.5, "delta": 1e-6, "mode": "basic"}, "mode 'basic' does not support rho"),
        ({"epsilon": None, "rho": 0.5, "delta": 0.0}, "delta = 0.0 of a budget in rho must be above 0"),
        ({"epsilon": None, "rho": 0.5, "delta": math.nan}, "delta = nan of a budget in rho must be above 0"),
        ({"epsilon": None, "rho": math.nan, "delta": 1e-6}, "rho = nan must be a number from 1e-09"),
        ({"epsilon": None, "rho": 1e-10, "delta": 1e-6}, "rho = 1e-10 must be a number from 1e-09"),
        ({"epsilon": None, "rho": 1e7, "delta": 1e-6}, "rho = 10000000.0 must be a number"),
        ({"epsilon": None, "rho": 1e6, "delta": 1e-300}, "epsilon = .* must be positive, from 1e-09 to 1,000,000"),
        ({"epsilon": None, "delta": 1e-6}, "epsilon is required, e.g. epsilon => 1 .*, or rho instead"),
    ],
)
def test_what_is_no_budget_of_rho_is_refused(given, refusal):
    with pytest.raises(ValueError, match=refusal):
        Budget.of(**given)


def test_rho_is_as_good_as_renyi_for_gaussians():
    """For gaussians rho is as good as renyi and for pure releases more expensive."""
    renyi, zcdp = (Budget.of(epsilon=1.0, delta=1e-6, mode=mode) for mode in ("renyi", "zcdp"))
    gaussian, pure = Release(GaussianDpEvent(20.0), 1.0, 1e-6), Release(EpsilonDeltaDpEvent(0.5, 0.0), 0.5, 0.0)
    shares = [
        [budget.cost(release)[0] / budget.charge_limit for budget in (renyi, zcdp)] for release in (gaussian, pure)
    ]
    assert shares[0][1] == pytest.approx(shares[0][0], rel=1e-6)
    assert shares[1][0] < 1
    assert shares[1][1] > 4
