"""Poisson-sampled Gaussians: the worst neighbours, the curve of their divergences, and the noise of many steps."""

import functools
import itertools
import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as theirs
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from goodness import ALPHA
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import others_slow, pairwise
from scipy import integrate, optimize, stats
from textbook import gaussian_delta, sampled_stick

from dbdp.privacy.accounting import subsampling
from dbdp.privacy.accounting.composition import least_epsilon
from dbdp.privacy.accounting.events import PoissonGaussianDpEvent
from dbdp.privacy.accounting.loss_distribution import _losses, poisson_gaussian_delta, poisson_gaussian_pld_multiplier
from dbdp.privacy.accounting.renyi import conversion
from dbdp.privacy.accounting.subsampling import amplified, poisson_gaussian_divergence, poisson_gaussian_multiplier

# --- the worst pair of neighbours -----------------------------------------------------------------------

KINK = 1 + 3e-3  # a hockey stick's, on a grid
GAMMAS = np.array([0.05, 0.5, 0.9, 1.0, 1.1, 2.0, 5.0, 20.0])


def plane(reach):
    """A grid of the plane, and the standard normal density on it times the area of a cell."""
    axis, width = np.linspace(-reach, reach, 201, retstep=True)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    return x, y, stats.norm.pdf(x) * stats.norm.pdf(y) * width**2


def sticks(one, other, probability, grid):
    """H_γ in the plane of two units with these contributions, for every γ; a vector is a unit of one row."""
    x, y, weight = grid
    densities = []
    for unit in map(np.atleast_2d, (one, other)):
        total = 0.0
        for drawn in itertools.product((0, 1), repeat=len(unit)):
            g = np.array(drawn) @ unit
            share = np.prod(np.where(drawn, probability, 1 - probability))
            total = total + share * np.exp(g[0] * x + g[1] * y - (g @ g) / 2)
        densities.append(total)
    return np.array([(np.maximum(densities[0] - gamma * densities[1], 0) * weight).sum() for gamma in GAMMAS])


def within(ball, count):
    """Vectors of the plane in a ball, half of them on its border."""
    generator = np.random.default_rng()
    norms = ball * np.where(generator.random(count) < 0.5, 1.0, np.sqrt(generator.random(count)))
    angles = 2 * np.pi * generator.random(count)
    return np.stack([norms * np.cos(angles), norms * np.sin(angles)], axis=1)


def opposite(probability, mean):
    """H_γ of g = -g' of norm μ, exactly, for every γ."""
    return np.array([sampled_stick(probability, mean, math.log(gamma)) for gamma in GAMMAS])


@pytest.mark.parametrize(("probability", "mean"), [(0.5, 1.0), (0.1, 2.0), (0.9, 0.5), (0.01, 3.0)])
def test_no_neighbours_tell_more_than_opposite_ones(probability, mean):
    grid = plane(6 + mean)
    worst = opposite(probability, mean)
    pairs = zip(within(mean, 100), within(mean, 100), strict=True)
    result = np.array([sticks(one, other, probability, grid) for one, other in pairs])
    assert (result <= worst * KINK + 1e-6).all()


def test_a_search_of_pairs_finds_the_opposite_ones():
    """For each γ by itself: uphill from the best of some pairs that are shorter, and not opposite."""
    probability, mean, grid = 0.3, 1.5, plane(7.0)
    worst = opposite(probability, mean)
    starts = list(itertools.product((0.7, 1.7, 2.7), (0.8, 1.6), (0.8, 1.6)))
    for place in (1, 4, 6):

        def fallen(turned, place=place):
            angle, *norms = turned
            r, s = (mean * (1 + math.cos(norm)) / 2 for norm in norms)
            return -sticks((r, 0), (s * math.cos(angle), s * math.sin(angle)), probability, grid)[place]

        first = min(starts, key=fallen)
        best = optimize.minimize(fallen, first, method="Nelder-Mead", options={"maxfev": 200, "fatol": 1e-7})
        assert -fallen(first) < 0.98 * worst[place]
        assert 0.99 * worst[place] < -best.fun <= worst[place] * KINK


def test_neither_an_empty_nor_a_smaller_neighbour_is_the_worst():
    """The search above could tell: other pairs are exceeded by far."""
    grid, mean, probability = plane(7.0), 1.5, 0.3
    worst = opposite(probability, mean)
    assert sticks((mean, 0), (-mean, 0), probability, grid) == pytest.approx(worst, rel=3e-3)
    for other in ((0.0, 0.0), (mean, 0.0), (0.0, mean), (-0.7 * mean, 0.0)):
        assert (sticks((mean, 0), other, probability, grid)[2:5] < 0.95 * worst[2:5]).all()


# --- one step -------------------------------------------------------------------------------------------


def exactly(probability, multiplier, order, rows=1):
    """D_α of Σ_k Bin(r, q)(k) N(±kμ, 1) in 50 digits, by adaptive quadrature of p^α q^(1-α) - αp + (α-1)q."""
    with mpmath.workdps(50):
        q, m, a = (mpmath.mpf(value) for value in (probability, 1 / mpmath.mpf(multiplier), order))
        parts = [
            mpmath.binomial(rows, k) * q**k * (1 - q) ** (rows - k) * mpmath.exp(-k * k * m * m / 2)
            for k in range(rows + 1)
        ]

        def excess(x):
            up, down = (sum(part * mpmath.exp(way * k * m * x) for k, part in enumerate(parts)) for way in (1, -1))
            return mpmath.npdf(x) * (mpmath.exp(a * mpmath.log(up / down)) * down - a * up + (a - 1) * down)

        last = max(a, 3) * rows * m + (a - 1) * m * rows * (q > 0.5) + 13
        cuts = mpmath.linspace(-3 * m * rows - 12, last, int(last + 3 * m * rows + 12) // 4 + 2)
        return mpmath.log1p(mpmath.quad(excess, cuts, method="gauss-legendre", maxdegree=6)) / (a - 1)


STEPS = [
    (0.01, 1.0, 2.0),
    (0.01, 1.0, 8.0),
    (0.01, 1.0, 40.0),
    (1e-3, 0.5, 1.02),
    (1e-3, 0.3, 7.3),
    (0.3, 3.0, 20.0),
    (0.5, 0.1, 1.5),
    (0.97, 0.7, 3.0),
    (0.999999, 2.0, 5.0),
    (1e-7, 1e4, 2.0),
    (1e-7, 1e4, 1.000001),
    (1e-7, 0.1, 1.3),
    (1e-4, 20.0, 900.0),
    (0.2, 100.0, 3e3),
    (1e-12, 1.0, 60.0),
]


UNIT_STEPS = [
    (0.01, 1.0, 2.0, 2),
    (0.01, 2.0, 12.0, 3),
    (1e-3, 0.5, 1.02, 4),
    (0.3, 5.0, 20.0, 5),
    (0.9, 3.0, 7.0, 3),
    (1e-7, 100.0, 2.0, 8),
    (1e-4, 20.0, 90.0, 16),
    (0.05, 4.0, 12.4, 10),
    (0.2, 0.3, 3.0, 2),
    (0.5, 1.0, 1.5, 64),
    (0.01, 0.2, 5.0, 3),
]
EVERY_STEP, ORDINARY = ([(step,) for step in each] for each in (STEPS + UNIT_STEPS, STEPS[::2] + UNIT_STEPS[::2]))


@pytest.mark.parametrize("step", others_slow(EVERY_STEP, *ORDINARY), ids=str)
def test_a_step_costs_what_fifty_digits_say(step):
    """A step costs a row, or a unit of several, its divergence."""
    exact, result = exactly(*step), poisson_gaussian_divergence(*step)
    assert exact <= result <= exact * (1 + mpmath.mpf("3e-9"))


@settings(max_examples=40)
@given(
    probability=st.floats(-7, -0.01).map(lambda exponent: 10.0**exponent),
    multiplier=st.floats(-0.3, 1.5).map(lambda exponent: 10.0**exponent),
    order=st.floats(-1, 1.3).map(lambda exponent: 1 + 10.0**exponent),
)
def test_a_step_costs_what_scipys_quadrature_says(probability, multiplier, order):
    mean = 1 / multiplier

    def excess(x):
        up, down = (math.log(1 - probability + probability * math.exp(way * mean * x - mean**2 / 2)) for way in (1, -1))
        return math.exp(order * up - (order - 1) * down - x * x / 2) / math.sqrt(2 * math.pi)

    far = (2 * order + 2) * mean + 12
    moment = integrate.quad(excess, -far, far, points=[0, order * mean], limit=500, epsabs=0, epsrel=1e-11)[0]
    result = poisson_gaussian_divergence(probability, multiplier, order)
    assert result == pytest.approx(math.log(moment) / (order - 1), rel=1e-7, abs=1e-11 / (order - 1))


@given(
    probability=st.floats(-9, 0).map(lambda exponent: 10.0**exponent),
    multiplier=st.floats(-2, 4).map(lambda exponent: 10.0**exponent),
    order=st.floats(-2, 5).map(lambda exponent: 1 + 10.0**exponent),
    factor=st.floats(1.001, 3),
)
def test_a_step_costs_more_for_rows_orders_and_less_noise(probability, multiplier, order, factor):
    here = poisson_gaussian_divergence(probability, multiplier, order)
    assert here > 0
    more = [
        poisson_gaussian_divergence(min(probability * factor, 1.0), multiplier, order),
        poisson_gaussian_divergence(probability, multiplier / factor, order),
        poisson_gaussian_divergence(probability, multiplier, 1 + (order - 1) * factor),
    ]
    assert min(more) >= here * (1 - 3e-9)
    assert here <= poisson_gaussian_divergence(1.0, multiplier, order) * (1 + 3e-9)


@given(multiplier=st.floats(0.01, 1e4), order=st.floats(1.01, 1e5))
def test_a_step_on_all_rows_is_a_gaussian_of_2c(multiplier, order):
    expected = order * (2 / multiplier) ** 2 / 2
    assert expected <= poisson_gaussian_divergence(1.0, multiplier, order) <= expected * (1 + 2e-9)


@pytest.mark.parametrize("multiplier", [1.0, 20.0])
def test_few_rows_and_small_orders_cost_their_second_order_form(multiplier):
    """D_α → 2αq² sinh(1/m²), where q is small: the χ² divergence of the pair, 4q² sinh(μ²), times α/2."""
    for order in (1.5, 3.0):
        result = poisson_gaussian_divergence(1e-8, multiplier, order)
        assert result == pytest.approx(order * 2e-16 * math.sinh(multiplier**-2), rel=1e-5)


@pytest.mark.parametrize(("probability", "multiplier"), [(0.01, 1.0), (0.3, 0.2), (1e-6, 0.5), (0.999, 1.0)])
def test_quadratures_and_closed_forms_meet(probability, multiplier):
    """Where the one gives way to the other, both are right."""
    odds = abs(math.log(probability / (1 - probability)))
    border = 1 + 2 * (odds + subsampling._CLEAR) * multiplier**2
    below, above = (poisson_gaussian_divergence(probability, multiplier, border * (1 + way)) for way in (-1e-9, 1e-9))
    assert below == pytest.approx(above, rel=1e-8)
    closed = subsampling._closed_forms(probability, 1 / multiplier, np.array([border * (1 - 1e-9)]))
    assert below == pytest.approx(closed[0], rel=1e-8)


@given(
    probability=st.floats(-9, -0.001).map(lambda exponent: 10.0**exponent),
    multiplier=st.floats(-1, 3).map(lambda exponent: 10.0**exponent),
    order=st.floats(-2, 2).map(lambda exponent: 1 + 10.0**exponent),
)
def test_closed_forms_are_never_below_the_quadrature(probability, multiplier, order):
    closed = subsampling._closed_forms(probability, 1 / multiplier, np.array([order]))[0]
    assert poisson_gaussian_divergence(probability, multiplier, order) <= closed * (1 + 1e-12)


EXTREMES = list(itertools.product([1e-15, 0.5, 1 - 1e-16, 1.0], [1e-9, 0.08, 1e12], [1 + 1e-9, 2.0, 1e5, 1e12]))


def test_the_ends_of_the_range_have_a_finite_cost():
    for extreme in EXTREMES:
        with np.errstate(all="raise", under="ignore"):
            result = poisson_gaussian_divergence(*extreme)
        assert 0 < result < math.inf


def test_orders_together_and_one_by_one_cost_the_same():
    usual = [float(order) for order in subsampling._ORDERS]
    alone = [subsampling._divergences(0.01, 1.0, np.array([order]))[0] for order in usual]
    assert [poisson_gaussian_divergence(0.01, 1.0, order) for order in usual] == pytest.approx(alone, rel=1e-13)
    orders_computed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PoissonGaussianDpEvent, "divergence", lambda _event, order: orders_computed.append(order) or 1.0)
        least_epsilon(PoissonGaussianDpEvent(0.01, 1.0, 1), 1e-6)
    assert orders_computed == usual  # they are computed together


# --- units ----------------------------------------------------------------------------------------------


def test_a_unit_of_one_row_is_a_row():
    """By the rule for units, whose mixture has then two parts."""
    for probability, mean in ((0.01, 1.0), (0.5, 0.3), (1e-5, 2.0)):
        orders = np.array([1.2, 3.0, 20.0])
        of_unit = subsampling._unit_divergences(probability, mean, orders, 1)
        assert of_unit == pytest.approx(subsampling._divergences(probability, 1 / mean, orders), rel=3e-9)


@pytest.mark.parametrize(("probability", "mean", "rows"), [(0.4, 0.8, 2), (0.1, 1.0, 3), (0.8, 0.5, 3)])
def test_no_two_units_are_more_telling_than_the_opposite_ones(probability, mean, rows):
    grid = plane(7 + rows * mean)
    worst = sticks([[mean, 0]] * rows, [[-mean, 0]] * rows, probability, grid)
    for _ in range(60):
        units = within(mean, rows), within(mean, rows)
        assert (sticks(*units, probability, grid) <= worst * KINK + 1e-6).all()
    one_row = sticks((mean, 0), (-mean, 0), probability, grid)
    assert (worst[2:6] > 1.3 * one_row[2:6]).all()  # a row's bound would be exceeded


def test_two_opposite_units_attain_the_divergence_of_a_step():
    probability, mean, rows, order = 0.3, 0.5, 3, 4.0
    x = np.linspace(-14, 20, 400_001)
    p, q = (
        sum(stats.binom.pmf(k, rows, probability) * stats.norm.pdf(x, way * k * mean) for k in range(rows + 1))
        for way in (1, -1)
    )
    exact = math.log((p**order * q ** (1 - order)).sum() * (x[1] - x[0])) / (order - 1)
    assert poisson_gaussian_divergence(probability, 1 / mean, order, rows) == pytest.approx(exact, rel=1e-8)
    assert poisson_gaussian_divergence(probability, 1 / mean, order) < exact / 3


@given(
    probability=st.floats(-9, 0).map(lambda exponent: 10.0**exponent),
    multiplier=st.floats(-2, 4).map(lambda exponent: 10.0**exponent),
    order=st.floats(-2, 5).map(lambda exponent: 1 + 10.0**exponent),
    rows=st.integers(2, 63),
)
@settings(max_examples=30)
def test_a_step_costs_a_larger_unit_more(probability, multiplier, order, rows):
    row, here, more = (poisson_gaussian_divergence(probability, multiplier, order, r) for r in (1, rows, rows + 1))
    assert 0 < row <= here * (1 + 3e-9)
    assert here <= more * (1 + 3e-9) < math.inf


# --- against adding and removing a row ------------------------------------------------------------------


def removal(probability, mean, orders, way=1):
    """The same quadrature of the pair (1-q)N(0, 1) + qN(μ, 1) and N(0, 1): A against 1, or 1 against A."""

    def gap(x, order):
        loss = np.log1p(probability * np.expm1(mean * x - mean**2 / 2))
        return subsampling._log_gap(way * loss, order) + (loss if way < 0 else 0)

    widths = np.full(len(orders), 0.05)
    points = np.full(len(orders), 20 * 60)
    logs = subsampling._trapezoid(orders, points, 2 * points, widths, gap)
    return subsampling._softplus(logs) / (orders - 1)


PAIRS = [(0.01, 1.0), (0.1, 2.0), (0.5, 1.5), (1e-4, 0.8)]


@pytest.mark.parametrize(("probability", "multiplier"), PAIRS)
def test_the_quadrature_gives_dp_accounting_s_add_remove_curve(probability, multiplier):
    orders = np.array([2.0, 3.0, 8.0, 16.0])  # whole orders are exact there
    accountant = RdpAccountant(orders)
    accountant.compose(theirs.PoissonSampledDpEvent(probability, theirs.GaussianDpEvent(multiplier)))
    assert removal(probability, 1 / multiplier, orders) == pytest.approx(accountant._rdp, rel=1e-9)


@pytest.mark.parametrize(("probability", "multiplier"), PAIRS)
def test_replacing_costs_between_removing_and_removing_2c(probability, multiplier):
    """No contribution is a neighbour's; H_γ at C is at most that of removing 2C for γ ≥ 1, of adding it for γ < 1.

    So e^((α-1)D) - 1, a mean of hockey sticks, is at most that of removing and that of adding together.
    """
    orders = np.array([1.5, 2.0, 3.0, 8.0])
    replaced = np.array([poisson_gaussian_divergence(probability, multiplier, order) for order in orders])
    assert (replaced > 1.2 * removal(probability, 1 / multiplier, orders)).all()
    twice = [removal(probability, 2 / multiplier, orders, way) for way in (1, -1)]
    assert (np.expm1((orders - 1) * replaced) < sum(np.expm1((orders - 1) * each) for each in twice)).all()


def stick(p, q, gamma):
    points = np.linspace(-15, 20, 200_001)
    return float(np.maximum(p(points) - gamma * q(points), 0).sum() * (points[1] - points[0]))


def mixture(probability, mean):
    return lambda x: (1 - probability) * stats.norm.pdf(x) + probability * stats.norm.pdf(x - mean)


@pytest.mark.parametrize(("probability", "multiplier"), PAIRS)
def test_hockey_sticks_of_replacing_lie_between_c_and_2c(probability, multiplier):
    """Hockey sticks of replacing lie between removing once and twice the contribution."""
    mean = 1 / multiplier
    for gamma in (1.0, 1.5, 4.0):
        replaced = stick(mixture(probability, mean), mixture(probability, -mean), gamma)
        assert stick(mixture(probability, mean), stats.norm.pdf, gamma) <= replaced + 1e-9
        assert replaced <= stick(mixture(probability, 2 * mean), stats.norm.pdf, gamma) + 1e-9


# --- the noise of many steps ----------------------------------------------------------------------------

RUNS = [
    (1.0, 1e-6, 1e-3, 1000),
    (1.0, 1e-6, 0.01, 10_000),
    (0.2, 1e-8, 1e-3, 200),
    (8.0, 1e-5, 0.1, 100),
    (1.0, 1e-6, 0.5, 50),
    (3.0, 1e-9, 0.02, 1),
]


@functools.cache
def their_losses(probability, multiplier, steps, width):
    """dp_accounting's privacy loss distribution under replace-one neighbours, from above."""
    return privacy_loss_distribution.from_gaussian_mechanism(
        multiplier,
        sampling_prob=probability,
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
        value_discretization_interval=width,
    ).self_compose(steps)


@pytest.mark.parametrize(("epsilon", "delta", "probability", "steps"), RUNS)
def test_the_multiplier_is_the_least_that_keeps_the_promise(epsilon, delta, probability, steps):
    """To 10⁻⁵ by the orders that `least_epsilon` takes; orders in between would save less than 2 %."""
    result = poisson_gaussian_multiplier(epsilon, delta, probability, steps)
    assert least_epsilon(PoissonGaussianDpEvent(probability, result, steps), delta) <= epsilon
    assert least_epsilon(PoissonGaussianDpEvent(probability, result * 0.99999, steps), delta) > epsilon
    orders = [1 + math.exp(step / 100) for step in range(-400, 1000)]
    curve = subsampling._divergences(probability, result * 0.98, np.array(orders)) * steps
    assert min(cost + conversion(order, delta) for cost, order in zip(curve, orders, strict=True)) > epsilon


@pytest.mark.parametrize(("epsilon", "delta", "probability", "steps"), RUNS)
def test_the_worst_steps_keep_the_promise_and_less_noise_not(epsilon, delta, probability, steps):
    """Where a row is in hardly any mini-batch (q·T < 1), no Rényi curve is near the truth: there it takes more."""
    result = poisson_gaussian_multiplier(epsilon, delta, probability, steps)
    factor = 1.1 if probability * steps > 5 else 1.5 if steps == 1 or probability * steps >= 1 else 2.3
    width = min(epsilon, 1) * 1e-2 / math.sqrt(steps)
    assert their_losses(probability, result, steps, width).get_delta_for_epsilon(epsilon) <= delta
    assert their_losses(probability, result / factor, steps, width).get_delta_for_epsilon(epsilon) > delta


def test_what_holds_for_added_and_removed_rows_is_not_enough():
    """dp_accounting's ordinary answer for the same steps, and half the noise of a shuffled run, break the promise."""
    epsilon, delta, probability, steps = 1.0, 1e-6, 0.01, 1000
    accountant = functools.partial(
        RdpAccountant, neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    removed = dp_accounting.calibrate_dp_mechanism(
        accountant,
        lambda z: theirs.SelfComposedDpEvent(
            theirs.PoissonSampledDpEvent(probability, theirs.GaussianDpEvent(z)), steps
        ),
        epsilon,
        delta,
    )
    replaced = poisson_gaussian_multiplier(epsilon, delta, probability, steps)
    assert 1.3 * removed < replaced <= 2 * removed
    assert poisson_gaussian_delta(epsilon, probability, removed, steps) > 100 * delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-5, 1e-6), (0.01, 1e-12), (50.0, 1e-6), (1e3, 1e-3)])
def test_any_promise_has_its_noise(epsilon, delta):
    noisy = poisson_gaussian_multiplier(epsilon, delta, 1e-3, 100)
    assert 0 < noisy < poisson_gaussian_multiplier(epsilon, delta, 1e-3, 400)
    assert noisy < poisson_gaussian_multiplier(epsilon, delta, 2e-3, 100)
    assert poisson_gaussian_delta(epsilon, 1e-3, noisy, 100) <= delta


REFUSED = [
    (0.0, 1e-6, 0.1, 1),
    (math.inf, 1e-6, 0.1, 1),
    (1.0, 0.0, 0.1, 1),
    (1.0, 1.0, 0.1, 1),
    (1.0, math.nan, 0.1, 1),
    (1.0, 1e-6, 0.0, 1),
    (1.0, 1e-6, 1.1, 1),
    (1.0, 1e-6, math.nan, 1),
    (1.0, 1e-6, 0.1, 0),
]


def test_what_is_no_run_is_refused():
    for run in REFUSED:
        for function in (poisson_gaussian_multiplier, poisson_gaussian_pld_multiplier):
            with pytest.raises(ValueError, match=r"must be positive"):
                function(*run)


@pytest.mark.parametrize(
    "step", [(0.0, 1.0, 2.0), (0.1, 0.0, 2.0), (0.1, math.inf, 2.0), (0.1, 1.0, 1.0), (0.1, 1.0, math.inf)], ids=str
)
def test_what_is_no_step_is_refused(step):
    with pytest.raises(ValueError, match=r"must be positive"):
        poisson_gaussian_divergence(*step)


# --- their privacy losses -------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta", "probability", "steps"), others_slow(RUNS, *RUNS[::3]))
def test_delta_is_that_of_dp_accounting(epsilon, delta, probability, steps):
    """Delta is that of dp accounting and the least noise is within a thousandth."""
    result = poisson_gaussian_pld_multiplier(epsilon, delta, probability, steps)
    assert result <= poisson_gaussian_multiplier(epsilon, delta, probability, steps) * 0.98
    assert poisson_gaussian_delta(epsilon, probability, result, steps) <= delta
    width = min(epsilon, 1) * 5e-3 / math.sqrt(steps)
    expected = their_losses(probability, result, steps, width).get_delta_for_epsilon(epsilon)
    assert poisson_gaussian_delta(epsilon, probability, result, steps) == pytest.approx(expected, rel=0.01)
    less = their_losses(probability, result * 0.998, steps, width)
    assert less.get_delta_for_epsilon(epsilon) > delta


@pytest.mark.parametrize(("probability", "mean"), [(0.1, 1.0), (0.5, 0.3), (1e-3, 2.0), (0.9, 1.5)])
@pytest.mark.parametrize("width", [0.3, 0.01])
def test_every_hockey_stick_of_the_grid_is_at_least_exact(probability, mean, width):
    """Every hockey stick of the grid is at least the exact one and on the grid the same."""
    losses = _losses(probability, mean, width, 1e-14)
    at = losses.places * width
    assert losses.masses.sum() + losses.beyond == pytest.approx(1, abs=1e-12)
    for log_gamma in (-1.5, -0.31, -0.3, 0.0, 0.05, 0.3, 0.9, 1.21):
        observed = at > log_gamma
        result = float(-np.expm1(log_gamma - at[observed]) @ losses.masses[observed]) + losses.beyond
        exact = sampled_stick(probability, mean, log_gamma)
        assert result >= exact - 1e-12
        if abs(log_gamma / width - round(log_gamma / width)) < 1e-9:
            assert result == pytest.approx(exact, rel=1e-9, abs=1e-12)
        assert result <= exact + width / 4


def test_runs_of_worst_steps_lose_as_much_as_stated():
    """A row of +C for one of -C, in each of ten steps; by how often the loss is above ε in a million runs of each."""
    probability, multiplier, steps, epsilon, runs = 0.3, 2.0, 10, 1.0, 10**6
    generator, mean = np.random.default_rng(), 1 / multiplier

    def frequency(contribution):
        loss = np.zeros(runs)
        for _ in range(steps):
            x = contribution * mean * (generator.random(runs) < probability) + generator.standard_normal(runs)
            up, down = (np.exp(way * mean * x - mean**2 / 2) for way in (1, -1))
            loss += np.log1p(probability * (up - 1)) - np.log1p(probability * (down - 1))
        return (loss > epsilon).mean()

    observed = frequency(1) - math.exp(epsilon) * frequency(-1)
    error = stats.norm.isf(ALPHA / 4) * math.sqrt(0.25 / runs) * (1 + math.exp(epsilon))
    claimed = poisson_gaussian_delta(epsilon, probability, multiplier, steps)
    assert observed <= claimed + error
    assert observed >= claimed * 0.99 - error
    assert error < claimed / 4
    assert observed > poisson_gaussian_delta(epsilon, probability, multiplier * 1.5, steps) + error


@pytest.mark.parametrize("steps", [1, 7])
def test_steps_on_nearly_all_rows_lose_as_much_as_one_gaussian(steps):
    epsilon, mean = 1.0, 0.8 * math.sqrt(steps)  # 2C√T/σ
    exact = gaussian_delta(epsilon, mean)
    result = poisson_gaussian_delta(epsilon, 1 - 1e-9, 2.5, steps)
    assert exact * (1 - 1e-6) <= result <= exact * 1.01
    all_rows = poisson_gaussian_pld_multiplier(epsilon, float(exact), 1.0, steps)
    assert all_rows == pytest.approx(2.5, rel=1e-6)


def test_delta_of_almost_no_noise_is_1():
    assert poisson_gaussian_delta(0.1, 0.9, 0.2, 50) == pytest.approx(1, abs=1e-6)
    assert poisson_gaussian_pld_multiplier(1.0, 1e-3, 1e-6, 1) == 1 / 8


# --- pure mechanisms ------------------------------------------------------------------------------------


@given(
    epsilon=st.floats(-6, 3).map(lambda exponent: 10.0**exponent), probability=st.floats(-6, 0).map(lambda e: 10.0**e)
)
def test_a_pure_mechanism_on_a_sample_is_the_formula_rounded_up(epsilon, probability):
    with mpmath.workdps(60):
        exact = mpmath.log1p(mpmath.mpf(probability) * mpmath.expm1(mpmath.mpf(epsilon)))
        assert exact <= amplified(epsilon, probability) <= exact * (1 + mpmath.mpf("1e-12"))


@settings(max_examples=300)
@given(epsilon=st.floats(0.01, 5), probability=st.floats(0.01, 1), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_no_sampled_pure_mechanism_tells_more_than_charged(epsilon, probability, shares):
    """Densities at one output without the row, with it and with its neighbour, any two within e^ε."""
    without, with_, other = 1.0, *(math.exp(epsilon * (2 * share - 1)) for share in shares)
    if abs(math.log(with_ / other)) <= epsilon:
        ratio = ((1 - probability) * without + probability * with_) / (
            (1 - probability) * without + probability * other
        )
        assert abs(math.log(ratio)) <= amplified(epsilon, probability) * (1 + 1e-12)
    ratio = (1 - probability) + probability * math.exp(epsilon)  # the neighbour's is that without the row
    assert math.log(ratio) == pytest.approx(amplified(epsilon, probability), rel=1e-9)


def test_a_mechanism_private_for_replaced_rows_is_not_amplified():
    """Exact randomised response of the row, and nothing of the kind when there is no row in the sample."""
    epsilon, probability = 1.0, 0.5
    yes, no = math.exp(epsilon) / (1 + math.exp(epsilon)), 1 / (1 + math.exp(epsilon))
    ratio = (probability * yes) / (probability * no)  # "no row" is a third answer
    assert math.log(ratio) > 1.5 * amplified(epsilon, probability)


def leaking(epsilon, delta):
    """Laws on four outcomes that are (ε, δ)-close and nothing better: each leaks with probability δ."""
    yes = (1 - delta) / (1 + math.exp(-epsilon))
    no = 1 - delta - yes
    return np.array([delta, yes, no, 0.0]), np.array([0.0, no, yes, delta])


def largest_stick(pairs, gamma):
    return max(
        float(np.maximum(p - gamma * q, 0).sum()) for one, other in pairs for p, q in ((one, other), (other, one))
    )


def on_sample(probability, without, with_):
    return (1 - probability) * without + probability * with_


@pairwise(epsilon=[0.1, 1.0, 4.0], delta=[0.0, 1e-6, 0.05], probability=[1e-3, 0.3, 1.0])
def test_a_leaking_mechanism_attains_the_amplified_pair(epsilon, delta, probability):
    """(ε', qδ): whatever the three laws are; all of it where the neighbour looks like no row."""
    random, gamma = np.random.default_rng(), math.exp(amplified(epsilon, probability))
    for _ in range(200):
        a, b, c = random.dirichlet(np.full(4, 0.5), 3)
        least = largest_stick([(a, b), (a, c), (b, c)], math.exp(epsilon))
        pair = on_sample(probability, a, b), on_sample(probability, a, c)
        assert largest_stick([pair], gamma) <= probability * least + 1e-14
    b, c = leaking(epsilon, delta)
    result = largest_stick([(on_sample(probability, c, b), c)], gamma)
    assert result == pytest.approx(probability * delta, rel=1e-6, abs=1e-14)
    if delta == 0.05:  # less would not do, neither an ε' that is smaller nor a δ without q
        assert largest_stick([(on_sample(probability, c, b), c)], gamma * 0.999) > probability * delta * (1 + 1e-9)


def test_a_leak_private_for_replaced_rows_is_not_amplified():
    """Without the row nothing comes out but a third answer: (ε, δ) for replaced rows, and no qδ at ε' on a sample."""
    epsilon, delta, probability = 1.0, 1e-3, 0.5
    b, c = (np.append(law, 0.0) for law in leaking(epsilon, delta))
    nothing = np.array([0.0, 0, 0, 0, 1])
    pair = on_sample(probability, nothing, b), on_sample(probability, nothing, c)
    assert largest_stick([(b, c)], math.exp(epsilon)) == pytest.approx(delta)
    assert largest_stick([pair], math.exp(amplified(epsilon, probability))) > 50 * probability * delta


@pytest.mark.parametrize(
    ("epsilon", "probability"), [(0.0, 0.5), (math.inf, 0.5), (1.0, 0.0), (1.0, 2.0), (math.nan, 1.0)]
)
def test_what_cannot_be_amplified_is_refused(epsilon, probability):
    with pytest.raises(ValueError, match=r"must be positive"):
        amplified(epsilon, probability)
