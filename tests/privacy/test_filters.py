"""A filter adds up exactly and never exceeds its limit, which bounds the cost of adaptive steps."""

import math
from fractions import Fraction
from functools import cache, reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.privacy.accounting.events import pure_divergence
from dbdp.privacy.accounting.filters import Filter

positive = st.floats(-300, 300).map(lambda exponent: 10.0**exponent)


@given(limit=positive, shares=st.lists(st.floats(0, 1), max_size=60))
def test_what_is_spent_is_never_above_the_limit_exactly(limit, shares):
    filter_, spent = Filter(limit), Fraction(0)
    for share in shares:
        charge = limit * share
        if filter_.affords(charge):
            filter_.spend(charge)
            spent += Fraction(charge)
        else:
            assert spent + Fraction(charge) > limit  # it refuses nothing that fits
        assert spent <= limit
        left = Fraction(limit) - spent
        assert filter_.remaining <= left < math.nextafter(filter_.remaining, math.inf)


@given(limit=positive, charges=st.lists(positive, max_size=20))
def test_all_that_remains_can_be_spent(limit, charges):
    filter_ = Filter(limit)
    for charge in charges:
        if filter_.affords(charge):
            filter_.spend(charge)
    rest = filter_.remaining
    filter_.spend(rest)
    assert filter_.remaining <= math.ulp(rest)


def test_sums_are_of_the_floats_themselves():
    """Ten floats of 0.1 are above 1; one of 1 and a million of 1e-17 are not 1."""
    ten = Filter(1.0)
    for _ in range(9):
        ten.spend(0.1)
    assert not ten.affords(0.1)
    assert reduce(add, [0.1] * 10) < 1  # as floats they would fit
    tiny = Filter(1.0)
    tiny.spend(1e-17)
    assert not tiny.affords(1.0)
    assert tiny.affords(math.nextafter(1.0, 0.0))


def test_nothing_is_spent_that_is_not_afforded():
    filter_ = Filter(0.5)
    with pytest.raises(AssertionError, match=r"a charge of 0.6 exceeds the rest, 0.5; call affords"):
        filter_.spend(0.6)
    assert filter_.remaining == 0.5
    filter_.spend(0.5)
    filter_.spend(0.0)
    assert filter_.remaining == 0


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(ValueError, match=r"limit = .* must be positive and finite"):
        Filter(limit)


@pytest.mark.parametrize("charge", [-1e-300, math.nan, math.inf])
def test_a_charge_that_is_none_is_refused(charge):
    with pytest.raises(ValueError, match=r"charge = .* must be at least 0 and finite"):
        Filter(1.0).affords(charge)
    with pytest.raises(ValueError, match=r"charge = .* must be at least 0 and finite"):
        Filter(1.0).spend(charge)


# --- what an adaptive loop costs ------------------------------------------------------------------------

ORDER, OTHER_ORDER = 3.0, 30.0
CHOICES = {epsilon: pure_divergence(epsilon, ORDER) for epsilon in (0.2, 0.5, 1.1)}


def afforded(limit):
    """A step is made if the filter affords it."""

    def admits(spent, charge):
        here = Filter(limit)
        for each in spent:
            here.spend(each)
        return here.affords(charge)

    return admits


def not_yet_exhausted(limit):
    """A step is made if anything is left, and its charge is deducted afterwards."""
    return lambda spent, charge: sum(spent) < limit


def either(limit, other_limit):
    """Of two filters, at two orders, either lets a step through."""
    epsilons = {charge: epsilon for epsilon, charge in CHOICES.items()}

    def admits(spent, charge):
        others = [pure_divergence(epsilons[each], OTHER_ORDER) for each in (*spent, charge)]
        return sum(spent) + charge <= limit or sum(others) <= other_limit

    return admits


def costliest(admits, most=12):
    """The largest D_α(P‖Q) of randomised responses chosen one after the other, each with the answers in view.

    A step multiplies E_Q (P/Q)^α by the mean, under Q, of (p/q)^α and what the best rest makes of it.
    """

    @cache
    def moment(spent):
        best = 1.0
        for epsilon, charge in CHOICES.items() if len(spent) < most else ():
            if admits(spent, charge):
                rest = moment(tuple(sorted((*spent, charge))))
                yes, no = math.exp(epsilon) / (1 + math.exp(epsilon)), 1 / (1 + math.exp(epsilon))
                best = max(best, (no * (yes / no) ** ORDER + yes * (no / yes) ** ORDER) * rest)
        return best

    return math.log(moment(())) / (ORDER - 1)


@pytest.mark.parametrize("limit", [0.25, 0.7, 1.0])
def test_no_loop_that_asks_first_exceeds_the_limit(limit):
    """No loop that asks first costs more than the limit and the best costs nearly that."""
    result = costliest(afforded(limit))
    assert 0.9 * limit < result <= limit * (1 + 1e-12)


def test_a_loop_that_asks_only_for_a_rest_costs_more():
    assert costliest(not_yet_exhausted(0.7)) > 1.3 * 0.7


def test_a_loop_through_any_of_two_filters_costs_more():
    """A loop that any of two filters lets through costs more than one of them allows."""
    assert costliest(either(0.25, 1.45)) > 1.5 * 0.25
