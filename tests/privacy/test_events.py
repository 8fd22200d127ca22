"""Events are stored and read unchanged, other data are refused, and divergences are those of the mechanisms."""

import itertools
import json
import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as theirs
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import each_value_quick
from scipy import special
from textbook import gaussian_delta, hockey_stick, permute_and_flip, renyi

from dbdp.privacy.accounting.events import (
    ADD_REMOVE,
    EVENTS,
    MAX_COUNT,
    MAX_EPSILON,
    MOST_LEVELS,
    REPLACE_ONE,
    ComposedDpEvent,
    DisjointDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    PaddedDpEvent,
    PerturbedMinimumDpEvent,
    PoissonGaussianDpEvent,
    Release,
    RenyiDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    ShuffledGaussianDpEvent,
    SphericalLaplaceDpEvent,
    ZCDpEvent,
    combined,
    pure_divergence,
    pure_mean,
)
from dbdp.privacy.accounting.renyi import conversion

# --- one order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.3, 2.0])
@pytest.mark.parametrize("share", [0.02, 1.0])
def test_one_order_bounds_lower_orders_and_none_above(shift, share):
    """By quadrature of (1-s)N(0, 1) + sN(μ, 1) against N(0, 1), which attains it at its own order."""

    def exactly(order):
        def integrand(x):
            return mpmath.npdf(x) * (1 - share + share * mpmath.exp(shift * x - shift**2 / 2)) ** order

        return float(mpmath.log(mpmath.quad(integrand, [-20, -5, 0, 5, 10, 20, 50])) / (order - 1))

    event = RenyiDpEvent(6.0, exactly(6.0))
    assert event.divergence(6.0) == event.bound
    assert all(exactly(order) < event.divergence(order) for order in (1.1, 2.0, 4.0, 5.9))
    assert exactly(6.5) > event.bound  # so that above its order none is stated
    assert event.divergence(6.5) == math.inf
    around = PaddedDpEvent(ComposedDpEvent((GaussianDpEvent(3.0), event)), 0.0)
    assert [each.is_known_at(order) for each in (event, around) for order in (6.0, 6.5)] == [True, False] * 2


# --- the ledger ----------------------------------------------------------------------------------------


@st.composite
def shuffled(draw):
    count = draw(st.integers(1, 6))
    weights = np.array(draw(st.lists(st.floats(1e-6, 1), min_size=count, max_size=count)))
    multipliers = draw(st.lists(st.floats(1e-9, 1e300), min_size=count, max_size=count))
    return ShuffledGaussianDpEvent(tuple((weights / weights.sum()).tolist()), tuple(multipliers))


SPHERICAL = st.builds(SphericalLaplaceDpEvent, st.floats(1e-9, 1e6), st.integers(1, MAX_COUNT))
LEAVES = st.one_of(
    SPHERICAL,
    st.builds(
        PerturbedMinimumDpEvent,
        st.one_of(SPHERICAL, st.builds(GaussianDpEvent, st.floats(1e-9, 1e12))),
        st.integers(1, MAX_COUNT),
        st.floats(0, 1e6),
        st.lists(st.floats(0, 1), min_size=1, max_size=8).map(tuple),
        st.floats(1e-9, 1e6),
        st.floats(0, 1, exclude_max=True),
    ),
    st.builds(GaussianDpEvent, st.floats(1e-9, 1e12)),
    st.builds(ZCDpEvent, st.floats(1e-24, 1e18)),
    st.builds(EpsilonDeltaDpEvent, st.floats(1e-9, 1e6), st.floats(0, 1, exclude_max=True)),
    st.builds(ExponentialMechanismDpEvent, st.floats(1e-9, 1e6)),
    st.builds(RenyiDpEvent, st.floats(1.001, 1e6), st.floats(0, 1e6)),
    st.builds(PoissonGaussianDpEvent, st.floats(1e-15, 1), st.floats(1e-9, 1e12), st.integers(1, MAX_COUNT)),
    shuffled(),
)


def nested(inner):
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    shapes, variations = st.sampled_from([1.0, math.inf]), st.floats(0, 1)
    return st.one_of(
        st.builds(ComposedDpEvent, several),
        st.builds(SelfComposedDpEvent, inner, st.integers(1, MAX_COUNT)),
        st.builds(DisjointDpEvent, several),
        st.builds(PaddedDpEvent, inner, st.floats(0, 1)),
        st.builds(
            RepeatAndSelectDpEvent, inner.filter(lambda event: event.is_run()), st.floats(1, 1e6), shapes, variations
        ),
    )


EVERY_EVENT = st.recursive(LEAVES, nested, max_leaves=6)
promises = {"epsilon": st.floats(1e-9, MAX_EPSILON), "delta": st.floats(0, 1, exclude_max=True)}


@pytest.mark.parametrize("around", ["ComposedDpEvent", "DisjointDpEvent", "SelfComposedDpEvent", None])
@pytest.mark.attack("repetitions")
def test_a_repetition_of_repetitions_is_refused(around):
    """A repetition of repetitions is refused since each level takes hundreds of times as long."""
    inner = {"event": around, "events": [REPEAT]} if around else REPEAT
    if around == "SelfComposedDpEvent":
        inner = {"event": around, "composed": REPEAT, "count": 2}
    data = {"event": REPEAT, "epsilon": 1.0, "delta": 0.0}
    assert Release.from_data(data)
    with pytest.raises(ValueError, match="must be an event that is not itself repeated"):
        Release.from_data(data | {"event": REPEAT | {"repeated": inner}})


@settings(max_examples=300)
@given(event=EVERY_EVENT, neighbours=st.sampled_from([REPLACE_ONE, ADD_REMOVE]), **promises)
def test_every_release_survives_the_ledger(event, epsilon, delta, neighbours):
    release = Release(event, epsilon, delta, neighbours)
    written = json.dumps(release.as_data(), allow_nan=False)
    assert Release.from_data(json.loads(written)) == release


def test_every_kind_of_event_was_tried():
    assert {type(event).__name__ for event in (*SAMPLES, *(each.event for each in ALONE))} == set(EVENTS)


GAUSSIAN = {"event": "GaussianDpEvent", "noise_multiplier": 3.0}
REPEAT = {"event": "RepeatAndSelectDpEvent", "repeated": GAUSSIAN, "mean": 3.0, "shape": 1, "total_variation": 0.0}
POISSON = {"event": "PoissonGaussianDpEvent", "sampling_probability": 0.1, "noise_multiplier": 2.0, "steps": 10}
SEVERAL = {"event": "SelfComposedDpEvent", "composed": GAUSSIAN, "count": 3}
SHUFFLED = {"event": "ShuffledGaussianDpEvent", "shares": [0.5, 0.5], "noise_multipliers": [1.0, 2.0]}
SPHERE = {"event": "SphericalLaplaceDpEvent", "epsilon": 1.0, "dimension": 10}
MINIMUM = {
    "event": "PerturbedMinimumDpEvent",
    "noise": GAUSSIAN,
    "outputs": 1,
    "curvature": 0.1,
    "corners": [0.5, 0.5, 1.0],
    "epsilon": 1.0,
    "delta": 1e-6,
}
PADDED = {"event": "PaddedDpEvent", "composed": POISSON, "total_variation": 1e-9}
PROMISE = {"epsilon": 1.0, "delta": 1e-6, "neighbours": REPLACE_ONE}
NO_EVENTS = {
    "no multiplier": {"event": "GaussianDpEvent"},
    "a multiplier of 0": GAUSSIAN | {"noise_multiplier": 0.0},
    "more than an event has": GAUSSIAN | {"rho": 1.0},
    "an event of another name": {"event": "NoEvent"},
    "an event of no name": {"noise_multiplier": 3.0},
    "a base class": {"event": "Release"},
    "a list": [GAUSSIAN],
    "a word": "GaussianDpEvent",
    "nothing": None,
    "no rho": {"event": "ZCDpEvent", "rho": 0.0},
    "an epsilon below a unit": {"event": "EpsilonDeltaDpEvent", "epsilon": 1e-10, "delta": 0.0},
    "a delta of 1": {"event": "EpsilonDeltaDpEvent", "epsilon": 1.0, "delta": 1.0},
    "an exponential mechanism of any epsilon": {"event": "ExponentialMechanismDpEvent", "epsilon": math.inf},
    "shares that are not all": SHUFFLED | {"shares": [0.5, 0.4]},
    "negative shares": SHUFFLED | {"shares": [1.5, -0.5]},
    "a share too few": SHUFFLED | {"shares": [1.0]},
    "a multiplier too few": SHUFFLED | {"noise_multipliers": [1.0]},
    "no noise in one position": SHUFFLED | {"noise_multipliers": [1.0, 0.0]},
    "a sampling probability of 0": POISSON | {"sampling_probability": 0.0},
    "a sampling probability above 1": POISSON | {"sampling_probability": 1.5},
    "no noise of a step": POISSON | {"noise_multiplier": 0.0},
    "steps that are no whole number": POISSON | {"steps": 10.0},
    "steps without number": POISSON | {"steps": math.inf},
    "a bad event several times": SEVERAL | {"composed": GAUSSIAN | {"noise_multiplier": 0.0}},
    "one event for several": {"event": "DisjointDpEvent", "events": GAUSSIAN},
    "a bad event within": {"event": "DisjointDpEvent", "events": [GAUSSIAN, {"event": "NoEvent"}]},
    "no run on average": REPEAT | {"mean": 0.5},
    "a shape in between": REPEAT | {"shape": 2.0},
    "a variation above 1": REPEAT | {"total_variation": 1.1},
    "a minimum with steps for noise": MINIMUM | {"noise": POISSON},
    "corners beyond twice the slope": MINIMUM | {"corners": [0.5, 1.5]},
    "too many corners": MINIMUM | {"corners": [0.5] * 9},
    "a bad event padded": PADDED | {"composed": POISSON | {"steps": 0}},
    "samples that are cut beyond certainty": PADDED | {"total_variation": 1.1},
}


def test_events_are_read_on_a_limited_number_of_levels():
    event = EpsilonDeltaDpEvent(1.0, 0.0)
    for _ in range(MOST_LEVELS - 1):
        event = SelfComposedDpEvent(event, 1)
    data = Release(event, 1.0, 0.0).as_data()
    assert Release.from_data(data).event == event
    with pytest.raises(ValueError, match=f"more than {MOST_LEVELS} levels"):
        Release.from_data(Release(SelfComposedDpEvent(event, 1), 1.0, 0.0).as_data())


def test_what_the_wrong_events_differ_from_are_events():
    for event in (GAUSSIAN, REPEAT, SHUFFLED, POISSON, SEVERAL, PADDED):
        assert Release.from_data(PROMISE | {"event": event}).as_data()["event"] == event


NO_NUMBERS = (None, "3", math.nan, math.inf, -1.5, [], [-1.5], ["1"], GAUSSIAN | {"noise_multiplier": 0.0})
NO_COUNTS = (0, 1.5, True, MAX_COUNT + 1)


def test_what_is_no_event_is_refused():
    """In every field of every kind of event what is no number, list or event; then what single fields do not take."""
    wrong = list(NO_EVENTS.values())
    for sample in (*SAMPLES, *(each.event for each in ALONE)):
        data = Release(sample, 1.0, 0.0).as_data()["event"]
        for name, value in data.items():
            others = NO_NUMBERS + (NO_COUNTS if isinstance(value, int) else ())
            wrong += [data | {name: each} for each in others if (name, each) != ("shape", math.inf)]
    for event in wrong:
        with pytest.raises(ValueError, match=r"cannot be charged|does not have the numbers"):
            Release.from_data(PROMISE | {"event": event})


NO_PROMISES = [
    {"epsilon": 0.0},
    {"epsilon": -1.0},
    {"epsilon": math.nan},
    {"epsilon": math.inf},
    {"epsilon": 1e7},
    {"epsilon": "1"},
    {"epsilon": None},
    {"delta": -1e-6},
    {"delta": 1.0},
    {"delta": math.nan},
    {"delta": None},
    {"neighbours": "edit-one"},
    {"neighbours": None},
]


def test_what_is_no_promise_is_refused():
    for wrong in NO_PROMISES:
        (name,) = wrong
        with pytest.raises(ValueError, match=name):
            Release.from_data(PROMISE | {"event": GAUSSIAN} | wrong)


def test_a_guarantee_may_omit_its_neighbours_and_nothing_else():
    for missing in (*PROMISE, "event"):
        data = {name: value for name, value in (PROMISE | {"event": GAUSSIAN}).items() if name != missing}
        if missing == "neighbours":
            assert Release.from_data(data).neighbours == REPLACE_ONE
        else:
            with pytest.raises(ValueError, match="is incomplete"):
                Release.from_data(data)


# --- divergences ---------------------------------------------------------------------------------------

orders = st.floats(-2, 3).map(lambda exponent: 1 + 10.0**exponent)


def their_divergence(event, order):
    accountant = RdpAccountant([order], dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(event)
    return accountant._rdp[0]


@pytest.mark.parametrize("kind", [GaussianDpEvent, ZCDpEvent])
@given(size=st.floats(1e-3, 100), order=orders)
def test_a_gaussian_and_its_rho_cost_what_dp_accounting_says(kind, size, order):
    expected = their_divergence(getattr(theirs, kind.__name__)(size), order)
    assert kind(size).divergence(order) == pytest.approx(expected, rel=1e-12)


@given(epsilon=st.floats(0.01, 20), order=orders)
def test_a_pure_release_costs_what_dp_accounting_says(epsilon, order):
    """A pure release costs what dp accounting says of randomised response."""
    noise = 2 / (1 + math.exp(epsilon))  # of two buckets
    response = their_divergence(theirs.RandomizedResponseDpEvent(noise, 2), order)
    assert EpsilonDeltaDpEvent(epsilon, 0.0).divergence(order) == pytest.approx(response, rel=1e-6, abs=1e-12)


@given(epsilon=st.floats(0.01, 20), order=orders)
def test_a_pure_release_costs_no_less_than_laplace_noise(epsilon, order):
    laplace = RdpAccountant([order])
    laplace.compose(theirs.LaplaceDpEvent(1 / epsilon))
    assert laplace._rdp[0] <= EpsilonDeltaDpEvent(epsilon, 0.0).divergence(order) * (1 + 1e-9)


RUNS = [
    (GaussianDpEvent(5.0), theirs.GaussianDpEvent(5.0)),
    (GaussianDpEvent(0.7), theirs.GaussianDpEvent(0.7)),
    (ZCDpEvent(0.01), theirs.ZCDpEvent(0.01)),
]


@pytest.mark.parametrize(("run", "mean", "shape"), each_value_quick(RUNS, [1.0, 3.0, 100.0], [1.0, math.inf]))
def test_a_repetition_costs_what_dp_accounting_says(run, mean, shape):
    """With the same auxiliary orders; at every order, its own and those above."""
    ours, other = run
    accountant = RdpAccountant(combined._ORDERS)
    accountant.compose(theirs.RepeatAndSelectDpEvent(other, mean, shape))
    event = RepeatAndSelectDpEvent(ours, mean, shape, 0.0)
    result = np.array([event.divergence(float(order)) for order in combined._ORDERS])
    finite = np.isfinite(accountant._rdp) & (combined._ORDERS < 1e4)
    assert finite.sum() > 200
    assert result[finite] == pytest.approx(np.minimum.accumulate(accountant._rdp[::-1])[::-1][finite], rel=1e-9)
    assert (np.diff(result) >= -1e-12).all()


@pytest.mark.parametrize("shape", [1.0, math.inf])
def test_a_repetition_that_leaks_is_charged_its_runs_leaks(shape):
    run = EpsilonDeltaDpEvent(0.5, 1e-7)
    event = RepeatAndSelectDpEvent(run, 10.0, shape, 1e-9)
    without = RepeatAndSelectDpEvent(EpsilonDeltaDpEvent(0.5, 0.0), 10.0, shape, 0.0)
    assert event.divergence(5.0) == without.divergence(5.0)
    assert event.leak(1.0) >= 10 * 1e-7 + (1 + math.e) * 1e-9
    assert event.leak(1.0) <= (1 + math.e) * (10 * 1e-7 + 1e-9) * (1 + 1e-11)
    assert without.leak(1.0) == 0


SAMPLES = [
    PerturbedMinimumDpEvent(GaussianDpEvent(4.0), 3, 0.1, (0.25, 0.25, 0.5), 1.0, 1e-6),
    PerturbedMinimumDpEvent(SphericalLaplaceDpEvent(1.0, 10), 1, 0.01, (0.5, 0.5, 1.0), 1.1, 0.0),
    SphericalLaplaceDpEvent(0.5, 10),
    GaussianDpEvent(2.0),
    ZCDpEvent(0.1),
    EpsilonDeltaDpEvent(0.5, 1e-6),
    ExponentialMechanismDpEvent(0.7),
    PoissonGaussianDpEvent(0.1, 2.0, 10),
    ShuffledGaussianDpEvent((0.5, 0.5), (1.0, 2.0)),
]


@given(order=orders)
def test_composed_events_add_up_and_disjoint_ones_do_not(order):
    """Composed events cost their sum and disjoint ones their largest."""
    costs = [event.divergence(order) for event in SAMPLES]
    assert ComposedDpEvent(tuple(SAMPLES)).divergence(order) == pytest.approx(sum(costs), rel=1e-12)
    assert DisjointDpEvent(tuple(SAMPLES)).divergence(order) == max(costs)


@given(order=orders, count=st.integers(1, 1000))
def test_an_event_costs_and_leaks_each_time_it_happens(order, count):
    for event in SAMPLES:
        several = SelfComposedDpEvent(event, count)
        assert several.divergence(order) == pytest.approx(count * event.divergence(order), rel=1e-12)
        assert several.leak(1.0) == pytest.approx(ComposedDpEvent((event,) * count).leak(1.0), rel=1e-12)


@given(order=orders, steps=st.integers(1, 10**6))
def test_poisson_steps_cost_less_than_steps_on_all_rows(order, steps):
    """Poisson sampled steps cost their number and never more than steps on all rows."""
    sampled, one = PoissonGaussianDpEvent(0.1, 2.0, steps), PoissonGaussianDpEvent(0.1, 2.0, 1)
    assert sampled.divergence(order) == pytest.approx(steps * one.divergence(order), rel=1e-12)
    all_rows = PoissonGaussianDpEvent(1.0, 2.0, steps)
    assert sampled.divergence(order) < all_rows.divergence(order)
    gaussian = SelfComposedDpEvent(GaussianDpEvent(1.0), steps)  # of sensitivity 2C
    assert all_rows.divergence(order) == pytest.approx(gaussian.divergence(order), rel=2e-9)


def test_composed_events_leak_their_sum():
    """Composed events leak their sum and disjoint ones their largest."""
    leaking = (EpsilonDeltaDpEvent(0.5, 1e-6), EpsilonDeltaDpEvent(0.1, 3e-6), GaussianDpEvent(1.0))
    assert ComposedDpEvent(leaking).leak(1.0) == pytest.approx(4e-6, rel=1e-12)
    assert DisjointDpEvent(leaking).leak(1.0) == 3e-6
    assert GaussianDpEvent(1.0).leak(1.0) == 0


@given(epsilon=st.floats(1e-3, 1e6), variation=st.floats(-320, 0).map(lambda exponent: 10.0**exponent))
def test_a_total_variation_leaks_one_plus_e_to_the_epsilon(epsilon, variation):
    """A total variation leaks 1 plus e to the epsilon times it or everything."""
    result = RepeatAndSelectDpEvent(GaussianDpEvent(1.0), 2.0, 1.0, variation).leak(epsilon)
    assert math.isfinite(result)
    with mpmath.workdps(50):
        exact = (1 + mpmath.exp(mpmath.mpf(epsilon))) * mpmath.mpf(variation)
        tiny = mpmath.mpf("1e-300")  # nothing beside a unit of 1e-18
        assert min(1, exact) - tiny <= result <= min(2, exact) * (1 + mpmath.mpf("1e-9")) + tiny


# --- the exponential mechanism ------------------------------------------------------------------------


def two_points(epsilon, share):
    """P/Q is e^(-share·ε) or e^((1 - share)ε): the most telling law with a loss in that interval."""
    low, high = math.exp(-share * epsilon), math.exp((1 - share) * epsilon)
    rare = (1 - low) / (high - low)
    return np.array([rare * high, (1 - rare) * low]), np.array([rare, 1 - rare])


@pytest.mark.parametrize(("epsilon", "order"), each_value_quick([0.1, 1.0, 5.0], [1.01, 2.0, 20.0]))
def test_no_bounded_range_costs_more_than_its_charge(epsilon, order):
    """Two points are enough: K(s) is convex in the law of the loss, whose mean of e^Z is fixed."""
    pairs = [two_points(epsilon, share) for share in np.linspace(1e-3, 1 - 1e-3, 999)]
    costs = [max(renyi(p, q, order), renyi(q, p, order)) for p, q in pairs]
    charge = ExponentialMechanismDpEvent(epsilon).divergence(order)
    assert max(costs) <= charge * (1 + 1e-9)
    assert max(costs) >= charge * (1 - 1e-4)
    assert charge < pure_divergence(epsilon, order) * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("count", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_no_exponential_mechanism_costs_more_than_its_charge(epsilon, count):
    """No exponential mechanism costs more than the charge and permute and flip does.

    Every score from 0 to 2 and every change of each by at most 1, exhaustively.
    """
    changes = np.array(list(itertools.product((-1, 0, 1), repeat=count)))
    worst = {"exponential": 0.0, "permute and flip": 0.0}
    for scores in itertools.product(range(3), repeat=count):
        for change in changes:
            pair = [np.array(scores), np.array(scores) + change]
            laws = {
                "exponential": [special.softmax(-epsilon * each / 2) for each in pair],
                "permute and flip": [permute_and_flip(-each, epsilon) for each in pair],
            }
            for name, (p, q) in laws.items():
                worst[name] = max(worst[name], renyi(p, q, 1.01))
    charge = ExponentialMechanismDpEvent(epsilon).divergence(1.01)
    assert 0.7 * charge < worst["exponential"] <= charge * (1 + 1e-9)
    assert worst["permute and flip"] > ({0.1: 3.8, 1.0: 2.6}[epsilon] if count == 2 else 1.7) * charge
    assert worst["permute and flip"] <= pure_divergence(epsilon, 1.01) * (1 + 1e-9)


# --- what an event counts for among Gaussians ----------------------------------------------------------


@given(exponent=st.floats(-9, 5.9))
def test_a_pure_release_counts_for_a_gaussian_as_telling(exponent):
    epsilon = 10.0**exponent
    mean = pure_mean(epsilon)
    with mpmath.workdps(50):
        tail = mpmath.mpf(1) / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        assert mpmath.ncdf(-mpmath.mpf(mean) / 2) <= tail  # G_μ is below the corner of f_ε
        if epsilon < 600:
            assert mpmath.ncdf(-mpmath.mpf(mean) / 2 * (1 - mpmath.mpf("1e-5"))) > tail
    assert mean <= 1.2534 * epsilon * (1 + 1e-6) + 1e-15


def test_a_mixture_counts_for_its_worst_position():
    """A gaussian counts for itself and a mixture for its worst position."""
    assert GaussianDpEvent(2.0).gaussian_square() == 0.25
    assert SelfComposedDpEvent(GaussianDpEvent(2.0), 3).gaussian_square() == 0.75
    assert SAMPLES[-1].gaussian_square() == 1.0


@given(steps=st.integers(1, 10**6), multiplier=st.floats(0.1, 1e3))
def test_steps_on_all_rows_are_one_gaussian(steps, multiplier):
    """Steps on all rows are one gaussian and steps on samples are none.

    They move by 2C; at every order, and as ρ, too.
    """
    event, one = PoissonGaussianDpEvent(1.0, multiplier, steps), GaussianDpEvent(multiplier / 2 / math.sqrt(steps))
    assert event.gaussian_square() == pytest.approx(one.gaussian_square(), rel=1e-12)
    assert event.concentration() == pytest.approx(one.concentration(), rel=1e-12)
    assert event.divergence(5.0) == pytest.approx(one.divergence(5.0), rel=1e-8)
    sampled = PoissonGaussianDpEvent(0.999, multiplier, steps)
    assert sampled.gaussian_square() is None
    assert sampled.concentration() is None


def test_disjoint_parts_cost_as_much_as_the_most_expensive():
    pure, dearest, cheapest = ExponentialMechanismDpEvent(1.0), GaussianDpEvent(0.5), GaussianDpEvent(3.0)
    assert DisjointDpEvent((cheapest, dearest)).gaussian_square() == 4.0
    assert DisjointDpEvent((cheapest, pure)).gaussian_square() == pure_mean(0.5) ** 2
    assert SelfComposedDpEvent(DisjointDpEvent((cheapest, pure)), 10).gaussian_square() == 10 * pure_mean(0.5) ** 2
    assert DisjointDpEvent((cheapest, ZCDpEvent(0.1))).gaussian_square() is None


ALONE = [
    Release(event, 1.0, 1e-6)
    for event in (
        ZCDpEvent(0.1),
        PoissonGaussianDpEvent(0.1, 2.0, 10),
        PerturbedMinimumDpEvent(GaussianDpEvent(4.0), 1, 0.1, (0.5, 0.5, 1.0), 0.9, 1e-7),
        ComposedDpEvent((GaussianDpEvent(3.0), ZCDpEvent(0.1))),
        SelfComposedDpEvent(ZCDpEvent(0.01), 10),
        DisjointDpEvent((GaussianDpEvent(3.0), ZCDpEvent(0.1))),
        RepeatAndSelectDpEvent(GaussianDpEvent(3.0), 2.0, 1.0, 0.0),
        PaddedDpEvent(PoissonGaussianDpEvent(0.1, 2.0, 10), 1e-9),
        RenyiDpEvent(20.0, 0.5),
    )
]


@pytest.mark.parametrize("release", ALONE, ids=lambda release: type(release.event).__name__)
def test_any_other_event_counts_for_its_promise(release):
    """Any other event counts for its promise and leaks its delta."""
    promise = EpsilonDeltaDpEvent(release.epsilon, release.delta)
    assert release.as_gaussian() == (pure_mean(1.0) ** 2, promise)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0])
def test_a_bounded_range_counts_for_half_and_attains_that(epsilon):
    """A loss within an interval of epsilon counts for half of it and attains that.

    Selections of a bounded range; a hundredth less would be too little.
    """
    square = ExponentialMechanismDpEvent(epsilon).gaussian_square()
    short = []
    for share in np.linspace(1e-3, 1 - 1e-3, 99):
        p, q = two_points(epsilon, share)
        for level in np.linspace(-epsilon, epsilon, 41):
            lost = hockey_stick(p, q, level)
            assert lost <= gaussian_delta(level, math.sqrt(square)) * (1 + 1e-9) + 1e-12
            short.append(lost - gaussian_delta(level, math.sqrt(square * 0.98)))
    assert max(short) > 0
    assert square < EpsilonDeltaDpEvent(epsilon, 0.0).gaussian_square() / 2


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("count", [2, 3])
def test_independent_pure_cells_count_for_less_than_one(epsilon, count):
    """Independent pure cells count for less than one release and no more private than that.

    Cells of ε/2 are not one of ε: the joint law of randomised responses, against one Gaussian.
    """
    square = SelfComposedDpEvent(EpsilonDeltaDpEvent(epsilon / count, 0.0), count).gaussian_square()
    yes = special.expit(epsilon / count)
    p, q = np.array([1.0]), np.array([1.0])
    for _ in range(count):
        p, q = np.outer(p, [yes, 1 - yes]).ravel(), np.outer(q, [1 - yes, yes]).ravel()
    levels = np.linspace(-epsilon, epsilon, 201)
    assert all(hockey_stick(p, q, level) <= gaussian_delta(level, math.sqrt(square)) + 1e-12 for level in levels)
    assert any(hockey_stick(p, q, level) > gaussian_delta(level, math.sqrt(square * 0.5)) for level in levels)
    assert square < 1.001 * pure_mean(epsilon) ** 2 / count * 1.2


# --- add-remove ----------------------------------------------------------------------------------------


@given(order=orders, multiplier=st.floats(0.1, 100), epsilon=st.floats(1e-3, 20))
def test_an_add_remove_event_becomes_two_replace_one(order, multiplier, epsilon):
    """What is private for added and removed records is replaced by two of them."""
    gaussian = Release(GaussianDpEvent(multiplier), 1.0, 1e-6, ADD_REMOVE).as_replace_one()
    assert gaussian.event.divergence(order) == pytest.approx(4 * GaussianDpEvent(multiplier).divergence(order))
    pure = Release(EpsilonDeltaDpEvent(epsilon, 0.0), epsilon, 0.0, ADD_REMOVE).as_replace_one()
    assert (pure.event, pure.epsilon, pure.delta) == (EpsilonDeltaDpEvent(2 * epsilon, 0.0), 2 * epsilon, 0.0)
    zcdp = Release(ZCDpEvent(0.1), 1.0, 1e-6, ADD_REMOVE).as_replace_one()
    assert zcdp.event == ZCDpEvent(0.4)
    assert (zcdp.epsilon, zcdp.neighbours) == (2.0, REPLACE_ONE)


@settings(max_examples=300)
@given(weights=st.lists(st.tuples(*[st.floats(1e-3, 1)] * 3), min_size=2, max_size=5), epsilon=st.floats(0.01, 2))
def test_two_steps_stay_within_the_converted_promise(weights, epsilon):
    """Three laws on a few outcomes: a record is added to the middle one on either side."""
    laws = np.array(weights).T / np.sum(weights, axis=0)[:, None]
    one, middle, other = laws

    def excess(p, q, at):
        return float(np.maximum(p - math.exp(at) * q, 0).sum())

    delta = max(excess(one, middle, epsilon), excess(middle, other, epsilon))
    if delta < 1:
        event_of = Release(EpsilonDeltaDpEvent(epsilon, delta), epsilon, delta, ADD_REMOVE).as_replace_one()
        assert excess(one, other, event_of.epsilon) <= event_of.delta + 1e-12
        assert event_of.event == EpsilonDeltaDpEvent(event_of.epsilon, event_of.delta)


def test_a_replace_one_release_is_left_alone():
    release = Release(ExponentialMechanismDpEvent(1.0), 1.0, 0.0)
    assert release.as_replace_one() is release


UNCONVERTED = [
    ExponentialMechanismDpEvent(1.0),
    PoissonGaussianDpEvent(0.1, 2.0, 10),
    SelfComposedDpEvent(GaussianDpEvent(3.0), 2),
    SAMPLES[-1],
    ComposedDpEvent((GaussianDpEvent(3.0),)),
    DisjointDpEvent((GaussianDpEvent(3.0),)),
    RepeatAndSelectDpEvent(GaussianDpEvent(3.0), 2.0, 1.0, 0.0),
]


@pytest.mark.parametrize("event", UNCONVERTED, ids=lambda event: type(event).__name__)
def test_what_has_no_sound_replace_one_form_is_refused(event):
    with pytest.raises(ValueError, match=rf"an add-remove {type(event).__name__} cannot be charged"):
        event.as_replace_one()


def test_divergence_and_conversion_give_dp_accounting_s_epsilon():
    grid = 1 + np.geomspace(1e-2, 1e3, 200)
    accountant = RdpAccountant(grid)
    accountant.compose(theirs.GaussianDpEvent(4.0))
    ours = min(GaussianDpEvent(4.0).divergence(order) + conversion(order, 1e-6) for order in grid)
    assert accountant.get_epsilon(1e-6) == pytest.approx(ours, rel=1e-9)
