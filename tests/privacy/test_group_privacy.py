"""Group privacy against brute force: chains of neighbours of small mechanisms, and the chains that attain it."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dbdp.privacy.accounting import MODES, Budget
from dbdp.privacy.calibration import analytic_noise_multiplier
from dbdp.privacy.events import (
    ComposedDpEvent,
    DisjointDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    PoissonGaussianDpEvent,
    Release,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    ShuffledGaussianDpEvent,
    ZCDpEvent,
    divergence,
)
from dbdp.privacy.groups import grouped, joint_delta, share

ROWS = pytest.mark.parametrize("rows", [2, 3, 5])
ORDERS = 1 + np.geomspace(1e-3, 1e3, 400)


def hockey_stick(p, q, epsilon):
    """δ at which P and Q are (ε, δ)-close, in both directions."""
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))


def renyi(p, q, orders):
    """D_α(P‖Q) and D_α(Q‖P) of laws without zeros, the larger of the two, for each order."""
    return np.max([divergences(np.log(a), np.log(b), orders) for a, b in ((p, q), (q, p))], axis=0)


def divergences(log_p, log_q, orders):
    exponents = orders[:, None] * log_p + (1 - orders[:, None]) * log_q
    largest = exponents.max(axis=1)
    return (largest + np.log(np.exp(exponents - largest[:, None]).sum(axis=1))) / (orders - 1)


def chain(random, rows):
    """Laws on a few outcomes, each a little off the one before: what r replacements one after the other do."""
    laws = [random.dirichlet(np.ones(4))]
    for _ in range(rows):
        laws.append(laws[-1] * np.exp(random.uniform(-0.7, 0.7, 4)))
        laws[-1] /= laws[-1].sum()
    return laws


def release_of(event, epsilon=1.0, delta=1e-6):
    return Release(event, epsilon, delta)


def event_of(event, rows):
    """The event of a unit, from that of a row; the claim is whatever follows."""
    delta = 2 * joint_delta(0.01, 1e-9, rows)
    return grouped(release_of(event, 0.01, 1e-9), rows, epsilon=0.01 * rows * (1 + 1e-9), delta=delta).event


# --- (ε, δ) ---------------------------------------------------------------------------------------------


@ROWS
@pytest.mark.parametrize("epsilon", [0.0625, 0.5])
def test_the_delta_of_a_group_is_attained_by_one_chain(rows, epsilon):
    """P_i(S) = δ(1 + … + e^{(r-i-1)ε}): each is (ε, δ)-close to the next, and the ends to nothing better."""
    delta = 1e-3
    masses = [delta * sum(math.exp(j * epsilon) for j in range(rows - i)) for i in range(rows + 1)]
    laws = [np.array([mass, 1 - mass]) for mass in masses]
    assert max(hockey_stick(p, q, epsilon) for p, q in pairwise(laws)) == pytest.approx(delta, rel=1e-9)
    ends = hockey_stick(laws[0], laws[-1], rows * epsilon)
    assert ends <= joint_delta(epsilon, delta, rows)
    assert ends == pytest.approx(joint_delta(epsilon, delta, rows), rel=1e-9)
    assert ends > 1.03 * rows * delta  # r times δ would not be enough


@ROWS
def test_no_chain_exceeds_the_delta_of_a_group(rows):
    random = np.random.default_rng()
    for _ in range(300):
        laws, epsilon = chain(random, rows), random.uniform(0.1, 0.7)
        delta = max(hockey_stick(p, q, epsilon) for p, q in pairwise(laws))
        assert hockey_stick(laws[0], laws[-1], rows * epsilon) <= joint_delta(epsilon, delta, rows) + 1e-15


@given(epsilon=st.floats(1e-5, 500), delta=st.one_of(st.just(0.0), st.floats(1e-30, 0.5)), rows=st.integers(1, 1000))
def test_the_share_of_a_row_is_worth_the_whole_for_the_unit_and_hardly_less(epsilon, delta, rows):
    each, least = share(epsilon, delta, rows)
    assert each * rows <= epsilon * (1 + 1e-15)
    assert each * rows >= epsilon * (1 - 1e-14)
    assert joint_delta(each, least, rows) <= delta
    assert joint_delta(each, least, rows) >= delta * (1 - 1e-11)


@pytest.mark.parametrize("epsilon", [1e6, 3e4])
def test_a_pure_epsilon_is_shared_however_large_it_is(epsilon):
    assert share(epsilon, 0.0, 4) == (epsilon / 4, 0.0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [(5e-9, 0.0, "5e-09 is too small for units of 10 rows; give 1e-08"), (501.0, 1e-6, "leaves one row no delta")],
)
def test_what_cannot_be_shared_is_refused(epsilon, delta, message):
    with pytest.raises(ValueError, match=message):
        share(epsilon, delta, 10)


def test_a_claim_that_does_not_follow_is_none():
    pure = release_of(EpsilonDeltaDpEvent(0.5, 0.0), 0.5, 0.0)
    assert grouped(pure, 2, epsilon=1.0, delta=1e-6).delta == 0
    with pytest.raises(ArithmeticError, match="is not"):
        grouped(pure, 3, epsilon=1.0, delta=1e-6)
    with pytest.raises(ArithmeticError, match="is not"):
        grouped(release_of(GaussianDpEvent(9.0), 0.5, 1e-6), 2, epsilon=1.0, delta=2e-6)


# --- events ---------------------------------------------------------------------------------------------


@ROWS
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_gaussians_of_a_row_are_for_a_unit_what_the_analytic_formula_says(rows, epsilon):
    """A chain that moves on in one direction by one sensitivity each: the ends are r of them apart."""
    multiplier = 3.0
    event = event_of(GaussianDpEvent(multiplier), rows)
    assert event.noise_multiplier == pytest.approx(multiplier / rows)
    assert event.noise_multiplier < multiplier / rows
    mean = rows / multiplier
    delta = norm.cdf(mean / 2 - epsilon / mean) - math.exp(epsilon) * norm.cdf(-mean / 2 - epsilon / mean)
    needed = analytic_noise_multiplier(epsilon, delta)
    assert event.noise_multiplier == pytest.approx(needed, rel=1e-6)


@ROWS
def test_zcdp_grows_with_the_square_and_no_chain_exceeds_it(rows):
    random, largest = np.random.default_rng(), 0.0
    for _ in range(60):
        laws = chain(random, rows)
        rho = max(float((renyi(p, q, ORDERS) / ORDERS).max()) for p, q in pairwise(laws))
        covered = event_of(ZCDpEvent(rho), rows).rho
        shares = renyi(laws[0], laws[-1], ORDERS) / ORDERS / covered
        assert shares.max() <= 1 + 1e-9
        largest = max(largest, float(shares.max()))
    assert largest > 0.2


@ROWS
def test_zcdp_is_attained_by_gaussians(rows):
    grid = np.arange(-40, 40, 0.05)
    logs = [-((grid - shift) ** 2) / 2 for shift in (0, rows)]
    first, last = (each - np.log(np.exp(each).sum()) for each in logs)
    orders = np.array([1.5, 2.0, 3.0])
    found = divergences(first, last, orders)
    assert found == pytest.approx([divergence(event_of(ZCDpEvent(0.5), rows), order) for order in orders], rel=1e-6)


@ROWS
@pytest.mark.parametrize("order", [1.5, 8.0, 40.0])
def test_pure_releases_add_up_and_a_geometric_counter_attains_it(rows, order):
    """P(k) ∝ e^{-ε|k - count|}: r records that count one each."""
    k, epsilon = np.arange(-400, 401), 0.3
    logs = [-epsilon * np.abs(k - shift) for shift in (0, rows)]
    first, last = (each - np.log(np.exp(each).sum()) for each in logs)
    assert float(np.abs(first - last).max()) == pytest.approx(rows * epsilon)
    event = event_of(EpsilonDeltaDpEvent(epsilon, 0.0), rows)
    assert event.epsilon >= rows * epsilon
    assert event.epsilon == pytest.approx(rows * epsilon)
    found = float(divergences(first, last, np.array([order]))[0])
    assert 0.5 * divergence(event, order) < found <= divergence(event, order)


@ROWS
def test_selections_keep_their_bounded_range(rows):
    """Weights e^{εu/2}: each record moves every utility by at most one, in any direction."""
    random, epsilon, widest = np.random.default_rng(), 0.4, 0.0
    event = event_of(ExponentialMechanismDpEvent(epsilon), rows)
    assert event.epsilon == pytest.approx(rows * epsilon)
    for _ in range(300):
        utilities = random.integers(-3, 4, 4).astype(float)
        moved = utilities + random.choice([-1, 1], (rows, 4)).sum(axis=0)
        first, last = (epsilon / 2 * each - np.log(np.exp(epsilon / 2 * each).sum()) for each in (utilities, moved))
        widest = max(widest, float(np.ptp(first - last)))
        orders = np.array([1.2, 4.0, 30.0])
        assert (divergences(first, last, orders) <= [divergence(event, order) + 1e-12 for order in orders]).all()
    assert 0.6 * event.epsilon < widest <= event.epsilon + 1e-12


def test_parts_are_taken_one_by_one():
    parts = (GaussianDpEvent(4.0), SelfComposedDpEvent(EpsilonDeltaDpEvent(0.1, 1e-9), 3))
    gaussian, repeated = event_of(ComposedDpEvent(parts), 2).events
    assert gaussian == event_of(parts[0], 2)
    assert repeated.count == 3
    assert repeated.event.epsilon == pytest.approx(0.2)
    assert repeated.event.delta == pytest.approx(1e-9 * (1 + math.exp(0.1)))


UNKNOWN = [
    PoissonGaussianDpEvent(0.1, 2.0, 5),
    ShuffledGaussianDpEvent((0.5, 0.5), (3.0, 4.0)),
    DisjointDpEvent((GaussianDpEvent(3.0), ExponentialMechanismDpEvent(1.0))),
    RepeatAndSelectDpEvent(GaussianDpEvent(60.0), 2.0, 1.0, 1e-12),
]


@pytest.mark.parametrize("event", UNKNOWN, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("composed", [False, True])
def test_where_no_form_is_proved_the_claim_itself_is_charged(event, composed):
    asked = ComposedDpEvent((GaussianDpEvent(4.0), event)) if composed else event
    epsilon, delta = share(1.0, 1e-6, 3)
    made = grouped(release_of(asked, epsilon, delta), 3, epsilon=1.0, delta=1e-6)
    assert made == Release(EpsilonDeltaDpEvent(1.0, 1e-6), 1.0, 1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("event", [GaussianDpEvent(4.0), ZCDpEvent(0.01), EpsilonDeltaDpEvent(0.3, 0.0), *UNKNOWN])
def test_a_ledger_takes_what_comes_out_and_never_charges_less_than_for_a_row(mode, event):
    epsilon, delta = share(1.0, 1e-8, 3)
    row = release_of(event, epsilon, delta)
    unit = Release.from_data(grouped(row, 3, epsilon=1.0, delta=1e-8).as_data())
    budget = Budget.of(epsilon=8.0, delta=1e-6, mode=mode)
    assert budget.cost(unit)[0] > budget.cost(row)[0]
