"""Group privacy against brute force: chains of neighbours of small mechanisms, and the chains that attain it."""

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs import each_value_quick
from scipy.stats import norm

from dbdp.algorithms.families.selections.privgene import sampled_epsilon
from dbdp.privacy.accounting.budget import MODES, Budget
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import (
    ComposedDpEvent,
    DisjointDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    PaddedDpEvent,
    PerturbedMinimumDpEvent,
    PoissonGaussianDpEvent,
    Release,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    ShuffledGaussianDpEvent,
    SphericalLaplaceDpEvent,
    ZCDpEvent,
)
from dbdp.privacy.accounting.groups import _of_units, grouped, joint_delta, share
from dbdp.privacy.accounting.subsampling import MOST_ROWS
from dbdp.privacy.selection import ExponentialMechanism

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
def test_the_share_of_a_row_is_worth_the_units_guarantee(epsilon, delta, rows):
    each, least = share(epsilon, delta, rows)
    assert Fraction(each) * rows <= Fraction(epsilon)
    assert each * rows >= epsilon * (1 - 1e-14)
    assert joint_delta(each, least, rows) <= delta
    assert joint_delta(each, least, rows) >= delta * (1 - 1e-11)


@pytest.mark.parametrize(("epsilon", "rows"), [(5.5, 9), (4.32, 31), (1.35, 22)])
def test_a_share_is_compared_exactly(epsilon, rows):
    """A share is compared exactly where a float would pass one that is too large."""
    nearest = epsilon / rows
    assert Fraction(nearest) * rows > Fraction(epsilon)
    assert not nearest * Fraction(rows) > Fraction(epsilon)  # a float times a Fraction is a float, rounded
    assert share(epsilon, 0.0, rows)[0] == math.nextafter(nearest, 0)
    with pytest.raises(ArithmeticError, match="is not"):
        grouped(release_of(EpsilonDeltaDpEvent(nearest, 0.0), nearest, 0.0), rows, epsilon=epsilon, delta=0.0)


@pytest.mark.parametrize("epsilon", [1e6, 3e4])
def test_a_pure_epsilon_is_shared_however_large_it_is(epsilon):
    assert share(epsilon, 0.0, 4) == (epsilon / 4, 0.0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [(5e-9, 0.0, "5e-09 is too small for units of 10 rows; give 1e-08"), (501.0, 1e-6, "leaves no delta for a row")],
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
def test_gaussians_of_a_unit_follow_the_analytic_formula(rows, epsilon):
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
    assert largest > 0.5 / rows  # as more than four chains in ten are: none of 60 once in 10¹³


@ROWS
def test_spherical_noise_is_for_a_unit_that_of_the_longest_chain(rows):
    """r shifts in one direction are one of r times the length; a perturbed minimum goes by way of its (ε, δ)."""
    assert event_of(SphericalLaplaceDpEvent(0.2, 7), rows).epsilon == pytest.approx(0.2 * rows)
    assert event_of(SphericalLaplaceDpEvent(0.2, 7), rows).dimension == 7
    minimum = PerturbedMinimumDpEvent(GaussianDpEvent(12.0), 1, 0.01, (0.5, 0.5, 1.0), 0.2, 1e-10)
    assert event_of(minimum, rows) == event_of(EpsilonDeltaDpEvent(0.2, 1e-10), rows)


@pytest.mark.parametrize(("epsilon", "dimension"), each_value_quick([0.01, 0.3, 2.0, 9.0], [1, 3, 10, 105]))
def test_rows_in_several_mini_batches_cost_no_more_than_in_one(epsilon, dimension):
    """In every ledger."""

    def charges(rows):
        event = event_of(SphericalLaplaceDpEvent(epsilon, dimension), rows)
        return np.array([event.divergence(1.5), event.divergence(10.3), event.gaussian_square(), event.concentration()])

    costs = {rows: charges(rows) for rows in (1, 2, 3, 5)}
    for some, others, together in ((1, 1, 2), (1, 2, 3), (2, 3, 5)):
        assert np.all(costs[some] + costs[others] <= costs[together] * (1 + 1e-9))
    assert not np.any(costs[2] + costs[3] <= costs[5] * 0.4)  # and it would be noticed if they were charged much less


@ROWS
def test_zcdp_is_attained_by_gaussians(rows):
    grid = np.arange(-40, 40, 0.05)
    logs = [-((grid - shift) ** 2) / 2 for shift in (0, rows)]
    first, last = (each - np.log(np.exp(each).sum()) for each in logs)
    orders = np.array([1.5, 2.0, 3.0])
    result = divergences(first, last, orders)
    assert result == pytest.approx([event_of(ZCDpEvent(0.5), rows).divergence(order) for order in orders], rel=1e-6)


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
    result = float(divergences(first, last, np.array([order]))[0])
    assert 0.5 * event.divergence(order) < result <= event.divergence(order)


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
        assert (divergences(first, last, orders) <= [event.divergence(order) + 1e-12 for order in orders]).all()
    assert 0.6 * event.epsilon < widest <= event.epsilon + 1e-12


def drawn(rows, probability):
    """Every Poisson sample of rows, with its probability and the sum of its rows."""
    for chosen in product((0, 1), repeat=len(rows)):
        weight = math.prod(probability if each else 1 - probability for each in chosen)
        yield (
            weight,
            np.sum([row for row, each in zip(rows, chosen, strict=True) if each], axis=0) if any(chosen) else 0,
        )


def selected(weights, base, rows, probability):
    """The law of a selection on a Poisson sample of rows, beside rows that are in it (the base)."""
    laws = [
        (weight, np.array([float(each) for each in weights(base + sums)])) for weight, sums in drawn(rows, probability)
    ]
    return sum(weight * law / law.sum() for weight, law in laws)


def range_of(one, other):
    return float(np.ptp(np.log(one) - np.log(other)))


@ROWS
@pytest.mark.parametrize("probability", [0.01, 0.5, 0.9])
def test_a_units_sampled_selection_attains_r_times_the_range(rows, probability):
    """Two rare candidates that the unit's records speak for, one before and one after, among many others."""
    spent, many = 0.8, 10**9
    mechanism = ExponentialMechanism(sampled_epsilon(spent, probability), 1.0)

    def weights(losses):
        first, second, last = map(float, mechanism.weights(losses.tolist()))
        return first, second, last * many

    neighbours = [[np.array(row)] * rows for row in ((0.0, 1.0, 1.0), (1.0, 0.0, 1.0))]
    ends = [selected(weights, np.zeros(3), unit, probability) for unit in neighbours]
    covered = event_of(ExponentialMechanismDpEvent(spent), rows).epsilon
    assert 0.999 * covered < range_of(*ends) <= covered
    assert range_of(*ends) > (rows - 0.01) * spent  # that of one record less is not enough


LINK = (
    np.array([10.2774, 5.0498, 1.0493, 10.8361]),
    [[0, 0, 2, 0], [2, 2, 0, 0]],
    [[0, 2, 0, 2], [1.23, 0.29, 1.98, 1.37]],
)


def softmax(scores):
    return np.exp(scores - np.max(scores))


def test_ranges_of_links_do_not_add_up_on_a_sample():
    """Ranges of links do not add up on a sample but the unit has r times that of a record all the same.

    Mixed over a unit's other record, one link's range is above that of a record: the chain proves nothing.
    """
    base, (old, new), (other_old, other_new) = LINK[0], LINK[1], LINK[2]
    probability, moved = 0.9, 2.0
    spent = 2 * math.log1p(probability * math.expm1(moved))
    chain = [(old, other_old), (new, other_old), (new, other_new)]
    laws = [selected(softmax, base, [np.array(row, float) for row in unit], probability) for unit in chain]
    assert max(range_of(p, q) for p, q in pairwise(laws)) > 1.02 * spent
    assert range_of(laws[0], laws[-1]) <= 2 * spent


@ROWS
def test_no_sampled_selection_costs_a_unit_more_than_charged(rows):
    """Given the other rows of the sample the range is r times a record's; mixed over them, ε and every D_α are."""
    random, nearest = np.random.default_rng(), 0.0
    for _ in range(150):
        moved, probability = random.choice([0.2, 1.0, 4.0]), random.choice([0.05, 0.5, 0.9])
        event = event_of(ExponentialMechanismDpEvent(2 * math.log1p(probability * math.expm1(moved))), rows)
        base, others = 5 * random.normal(size=4), 3 * random.normal(size=(2, 4))
        units = moved * np.rint(random.random((2, rows, 4)) * random.choice([1, 8])) / 8
        units *= moved / max(units.max(), 1e-9)
        pairs = [
            (weight, [selected(softmax, base + sums, list(unit), probability) for unit in units])
            for weight, sums in drawn(list(others), probability)
        ]
        assert max(range_of(*pair) for _, pair in pairs) <= event.epsilon * (1 + 1e-9)
        nearest = max(nearest, *(range_of(*pair) / event.epsilon for _, pair in pairs))
        one, other = (sum(weight * pair[end] for weight, pair in pairs) for end in (0, 1))
        assert np.abs(np.log(one) - np.log(other)).max() <= event.epsilon * (1 + 1e-9)
        orders = np.array([1.2, 4.0, 30.0])
        assert (renyi(one, other, orders) <= [event.divergence(order) + 1e-9 for order in orders]).all()
    assert nearest > 0.3  # one try in six: none of 150 would by chance once in 1e11


def test_parts_are_taken_one_by_one():
    parts = (GaussianDpEvent(4.0), SelfComposedDpEvent(EpsilonDeltaDpEvent(0.1, 1e-9), 3))
    gaussian, repeated = event_of(ComposedDpEvent(parts), 2).events
    assert gaussian == event_of(parts[0], 2)
    assert repeated.count == 3
    assert repeated.event.epsilon == pytest.approx(0.2)
    assert repeated.event.delta == pytest.approx(1e-9 * (1 + math.exp(0.1)))


def test_poisson_steps_of_a_unit_cost_its_rows_mixture():
    row = PaddedDpEvent(PoissonGaussianDpEvent(0.1, 6.0, 5), 1e-12)
    assert event_of(row, 3) == PaddedDpEvent(PoissonGaussianDpEvent(0.1, 6.0, 5, 3), 1e-12)
    assert event_of(event_of(row, 3), 2) == event_of(row, 6)
    assert _of_units(row, MOST_ROWS + 1) is None
    assert all(
        row.divergence(order) < event_of(row, 3).divergence(order) <= 9 * row.divergence(order) * 1.5
        for order in (1.5, 4.0, 12.0)
    )


@ROWS
def test_a_units_updates_on_all_rows_are_one_gaussian(rows):
    """All of its rows are in each of the updates."""
    event = event_of(PoissonGaussianDpEvent(1.0, 6.0, 5), rows)
    gaussian = GaussianDpEvent(6.0 / (2 * rows * math.sqrt(5)))
    assert event.gaussian_square() == pytest.approx(gaussian.gaussian_square())
    assert event.concentration() == pytest.approx(gaussian.concentration())
    assert event.divergence(7.0) == pytest.approx(gaussian.divergence(7.0))


UNKNOWN = [
    PoissonGaussianDpEvent(0.1, 3000.0, 5, MOST_ROWS),
    ShuffledGaussianDpEvent((0.5, 0.5), (3.0, 4.0)),
    DisjointDpEvent((GaussianDpEvent(3.0), ExponentialMechanismDpEvent(1.0))),
    RepeatAndSelectDpEvent(GaussianDpEvent(60.0), 2.0, 1.0, 1e-12),
]


@pytest.mark.parametrize("event", UNKNOWN, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("composed", [False, True])
def test_where_no_form_is_proved_the_claim_itself_is_charged(event, composed):
    event_of_row = ComposedDpEvent((GaussianDpEvent(4.0), event)) if composed else event
    epsilon, delta = share(1.0, 1e-6, 3)
    release_of_units = grouped(release_of(event_of_row, epsilon, delta), 3, epsilon=1.0, delta=1e-6)
    assert release_of_units == Release(EpsilonDeltaDpEvent(1.0, 1e-6), 1.0, 1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "event",
    [
        GaussianDpEvent(4.0),
        ZCDpEvent(0.01),
        EpsilonDeltaDpEvent(0.3, 0.0),
        SphericalLaplaceDpEvent(0.3, 10),
        PerturbedMinimumDpEvent(GaussianDpEvent(12.0), 1, 0.01, (0.5, 0.5, 1.0), 0.3, 1e-10),
        *UNKNOWN,
    ],
)
def test_a_unit_is_never_charged_less_than_a_row(mode, event):
    epsilon, delta = share(1.0, 1e-8, 3)
    row = release_of(event, epsilon, delta)
    unit = Release.from_data(grouped(row, 3, epsilon=1.0, delta=1e-8).as_data())
    budget = Budget.of(epsilon=8.0, delta=1e-6, mode=mode)
    assert budget.cost(unit)[0] > budget.cost(row)[0]
