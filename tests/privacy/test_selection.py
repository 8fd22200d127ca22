"""Private choices follow their laws: exact weights, the number of runs, and what a tuning is charged."""

import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as theirs
from dp_accounting.rdp import RdpAccountant
from goodness import ALPHA, of_cells
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pairs import a_third_quick, others_slow
from scipy import special, stats

from dbdp.algorithms import NOISY_WHILE_TRAINING, Facts, Request
from dbdp.algorithms.combined import tuning
from dbdp.algorithms.combined.tuning import METHODS, TuningRequest
from dbdp.privacy import selection
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.composition import least_epsilon
from dbdp.privacy.accounting.events import (
    DisjointDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    Release,
    RepeatAndSelectDpEvent,
)
from dbdp.privacy.selection import AboveThreshold, ExponentialMechanism, Repetitions

epsilons = st.floats(-9, 6).map(lambda exponent: 10.0**exponent)
counts = st.lists(st.integers(0, 10**6), min_size=1, max_size=8)

# --- the exponential mechanism --------------------------------------------------------------------------


@settings(max_examples=200)
@given(epsilon=epsilons, errors=counts)
def test_weights_are_those_of_the_law_to_a_millionth(epsilon, errors):
    """⌈2^p e^max(-K, -ε'(errors - fewest)/2)⌉ with ε' = ε(1 - 10⁻⁶)."""
    weights = ExponentialMechanism(epsilon).weights(errors)
    with mpmath.workprec(600):
        rate = mpmath.mpf(epsilon * (1 - 1e-6)) / 2
        exact = [2**160 * mpmath.exp(max(-64, -rate * (count - min(errors)))) for count in errors]
        for weight, each in zip(weights, exact, strict=True):
            assert 0 <= weight - each < 1 + mpmath.mpf(2) ** -100
    assert max(weights) == 2**160


def probabilities(mechanism, errors):
    weights = mechanism.weights(errors)
    return [Fraction(weight, sum(weights)) for weight in weights]


@settings(max_examples=300)
@given(
    epsilon=epsilons,
    base=st.lists(st.integers(0, 200), min_size=2, max_size=6),
    changes=st.lists(st.sampled_from([-1, 0, 1]), min_size=6, max_size=6),
    scale=st.sampled_from([1, 1000]),
)
def test_no_record_exceeds_e_to_the_epsilon_exactly(epsilon, base, changes, scale):
    """In rationals, and for the range too: the loss lies in an interval of length ε."""
    errors = [1 + scale * count for count in base]
    moved = [count + change for count, change in zip(errors, changes, strict=False)]
    mechanism = ExponentialMechanism(epsilon)
    ratios = [p / q for p, q in zip(*(probabilities(mechanism, each) for each in (errors, moved)), strict=True)]
    with mpmath.workdps(120):
        limit = mpmath.exp(mpmath.mpf(epsilon))
        exact = [mpmath.mpf(ratio.numerator) / ratio.denominator for ratio in ratios]
        assert all(1 / limit <= ratio <= limit for ratio in exact)
        assert max(exact) / min(exact) <= limit


def test_all_of_the_range_is_used():
    """Two candidates that swap places; weights e^(-ε errors) would span 2ε."""
    first, second = (probabilities(ExponentialMechanism(1.0), errors) for errors in ([0, 1], [1, 0]))
    span = math.log(first[0] / second[0]) - math.log(first[1] / second[1])
    assert 0.99999 < span <= 1


@pytest.mark.parametrize(
    ("epsilon", "errors"), others_slow([(1.0, [3, 5, 4, 4]), (0.1, [10, 0, 30]), (8.0, [7, 8, 7])], (1.0, [3, 5, 4, 4]))
)
def test_choices_are_as_frequent_as_their_probabilities(epsilon, errors):
    mechanism, size = ExponentialMechanism(epsilon), 20_000
    result = Counter(mechanism.choose(errors) for _ in range(size))
    observed = np.array([result[candidate] for candidate in range(len(errors))])
    expected = np.array([float(each) for each in probabilities(mechanism, errors)])
    assert of_cells(observed, expected) > ALPHA
    wrong = np.exp(-np.array(errors) * epsilon)  # twice the ε
    assert of_cells(observed, wrong / wrong.sum()) < ALPHA


def test_a_single_candidate_is_chosen_and_hopeless_ones_are_not():
    assert ExponentialMechanism(1.0).choose([17]) == 0
    assert {ExponentialMechanism(1.0).choose([10**6, 0, 10**6]) for _ in range(50)} == {1}


def test_a_choice_has_a_bounded_range_and_a_search_is_pure():
    assert ExponentialMechanism(0.7).guarantee == Release(ExponentialMechanismDpEvent(0.7), 0.7, 0.0)
    assert AboveThreshold(0.5, 0.25, 1.0).guarantee == Release(EpsilonDeltaDpEvent(1.0, 0.0), 1.0, 0.0)


@settings(max_examples=300)
@given(
    epsilon=epsilons,
    sensitivity=st.floats(-30, 30).map(lambda exponent: 10.0**exponent),
    base=st.lists(st.floats(-3, 3), min_size=2, max_size=6),
    changes=st.lists(st.floats(-1, 1), min_size=6, max_size=6),
    scale=st.sampled_from([1.0, 1e6, 1e-6]),
)
def test_no_record_of_real_losses_exceeds_e_to_the_epsilon(epsilon, sensitivity, base, changes, scale):
    """No record that moves real losses by the sensitivity changes a probability by more."""
    losses = [sensitivity * scale * each for each in base]
    moved = [loss + sensitivity * change for loss, change in zip(losses, changes, strict=False)]
    steps = [abs(Fraction(there) - Fraction(here)) for here, there in zip(losses, moved, strict=True)]
    largest = max(Fraction(sensitivity), *steps)  # the sums were rounded
    mechanism = ExponentialMechanism(epsilon, math.nextafter(float(largest), math.inf))
    ratios = [p / q for p, q in zip(*(probabilities(mechanism, each) for each in (losses, moved)), strict=True)]
    with mpmath.workdps(120):
        limit = mpmath.exp(mpmath.mpf(epsilon))
        exact = [mpmath.mpf(ratio.numerator) / ratio.denominator for ratio in ratios]
        assert all(1 / limit <= ratio <= limit for ratio in exact)
        assert max(exact) / min(exact) <= limit


@given(epsilon=epsilons, errors=counts, sensitivity=st.sampled_from([2.0**-40, 0.25, 8.0, 2.0**60]))
def test_losses_and_their_sensitivity_have_one_unit(epsilon, errors, sensitivity):
    scaled = ExponentialMechanism(epsilon, sensitivity).weights([sensitivity * count for count in errors])
    assert scaled == ExponentialMechanism(epsilon).weights(errors)


def test_the_smallest_difference_of_two_losses_is_weighed():
    """Losses of a million that differ in the last bit; and ones whose difference no float can tell."""
    near, unit = [1e6, math.nextafter(1e6, 0.0)], 1e6 - math.nextafter(1e6, 0.0)
    first, second = probabilities(ExponentialMechanism(1.0, unit), near)
    assert math.log(second / first) == pytest.approx(0.5, rel=2e-6)
    first, second = probabilities(ExponentialMechanism(1.0, 1e300), [1e300, -1e-300])
    assert math.log(second / first) == pytest.approx(0.5, rel=2e-6)


@pytest.mark.parametrize("losses", [[1.0, math.nan], [math.inf, 1.0], [-math.inf]])
def test_losses_that_are_not_finite_are_never_compared(losses):
    for compare in (
        ExponentialMechanism(1.0).choose,
        lambda values: AboveThreshold(1.0, 1.0, 1.0).first_above(values, 9),
    ):
        with pytest.raises(ArithmeticError, match="internal error"):
            compare(losses)


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, math.nan, math.inf, 1e-300])
def test_a_selection_without_a_sensitivity_is_refused(sensitivity):
    with pytest.raises(ValueError, match=r"sensitivity = .* must be finite"):
        ExponentialMechanism(1.0, sensitivity)
    with pytest.raises(ValueError, match=r"sensitivity = .* must be finite"):
        AboveThreshold(1.0, 1.0, sensitivity)


@pytest.mark.statistical
def test_several_choices_are_made_among_those_left():
    mechanism, losses, size = ExponentialMechanism(1.0, 0.5), [0.3, 0.1, 0.9, 0.35], 20_000
    result = Counter(tuple(mechanism.choose_several(losses, 2)) for _ in range(size))
    pairs = [(one, other) for one in range(4) for other in range(4) if one != other]
    weights = np.exp(-np.array(losses))
    expected = np.array([weights[i] * weights[j] / (weights.sum() - weights[i]) for i, j in pairs]) / weights.sum()
    observed = np.array([result[pair] for pair in pairs])
    assert observed.sum() == size
    assert of_cells(observed, expected) > ALPHA
    at_once = np.array([weights[i] * weights[j] for i, j in pairs])  # two in proportion to their weights
    assert of_cells(observed, at_once / at_once.sum()) < ALPHA


def test_all_candidates_may_be_chosen_and_no_more():
    mechanism = ExponentialMechanism(1.0)
    assert sorted(mechanism.choose_several([5.0, 1.0, 3.0], 3)) == [0, 1, 2]
    assert mechanism.choose_several([1e9, 0.0, 1e6, 1e3], 3) == [1, 3, 2]
    for count in (0, 4):
        with pytest.raises(ValueError, match=rf"count = {count} must be between 1 and the 3 candidates"):
            mechanism.choose_several([5.0, 1.0, 3.0], count)


# --- the first above a threshold ------------------------------------------------------------------------


def discrete_laplace(scale, reach):
    law = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return law / law.sum()


def first_law(values, threshold, *, scales, reach=60):
    """P(index) and P(None) for whole values and noise, by summing over the threshold's noise."""
    noise = np.arange(-reach, reach + 1)
    tail = np.cumsum(discrete_laplace(scales[1], 6 * reach)[::-1])[::-1]  # P(ν ≥ k), from k = -6·reach
    above = np.array([tail[threshold + noise - value + 6 * reach] for value in values])
    none = np.cumprod(np.vstack([np.ones(len(noise)), 1 - above]), axis=0)
    return np.append((none[:-1] * above), none[-1:], axis=0) @ discrete_laplace(scales[0], reach)


@pytest.mark.parametrize(("one", "two"), [(0.5, 0.25), (0.25, 0.5), (1.0, 1.0)])
def test_no_answer_tells_more_than_epsilon_and_some_as_much(one, two):
    """Exhaustively: every change of four values by a unit; then many low values before a high one."""
    scales, worst = (1 / one, 1 / two), 0.0
    for changes in np.ndindex(3, 3, 3, 3):
        p = first_law([0, 1, 0, 2], 2, scales=scales)
        q = first_law(np.array([0, 1, 0, 2]) + changes - 1, 2, scales=scales)
        worst = max(worst, np.abs(np.log(p / q)).max())
    assert worst <= (one + 2 * two) * (1 + 1e-9)
    many = [0] * 3000
    p, q = first_law([*many, 1], 0, scales=scales), first_law([1] * len(many) + [0], 0, scales=scales)
    measured = abs(math.log(p[-2] / q[-2]))
    assert measured == pytest.approx(one + 2 * two, rel=1e-9)
    assert measured > 1.2 * (one + two)  # ε₁ + ε₂ is too little: values move both ways


@pytest.mark.parametrize(("one", "two", "control"), [(1.0, 0.5, (1.0, 1.6)), (0.2, 2.0, (1.6, 1.0))])
def test_the_first_above_has_its_law(one, two, control):
    search, size, values, threshold = AboveThreshold(one, two, 1.0), 8_000, [0.0, 1.25, -0.5, 2.0], 1.5
    result = Counter(search.first_above(values, threshold) for _ in range(size))
    observed = np.array([result[answer] for answer in (0, 1, 2, 3, None)])

    def law(*factors):
        units = 32  # on a coarser grid the law differs by less than the sample tells
        scales = [units * factor / epsilon for factor, epsilon in zip(factors, (one, two), strict=True)]
        return first_law([int(units * v) for v in values], int(units * threshold), scales=scales, reach=60 * units)

    assert of_cells(observed, law(1, 1)) > ALPHA
    assert of_cells(observed, law(1 / control[0], 1 / control[1])) < ALPHA  # it would notice less noise
    assert of_cells(observed, law(*control)) < ALPHA  # and more


def test_values_after_the_first_above_are_not_computed():
    read = []

    def values():
        for value in (-1e9, -1e9, 1e9, 1e9):
            read.append(value)
            yield value

    assert AboveThreshold(1.0, 1.0, 1.0).first_above(values(), 0.0) == 2
    assert read == [-1e9, -1e9, 1e9]
    assert AboveThreshold(1.0, 1.0, 1.0).first_above([-1e9] * 3, 0.0) is None
    assert AboveThreshold(1.0, 1.0, 1.0).first_above([], 0.0) is None


def test_the_thresholds_noise_is_drawn_once():
    """All noise is replaced by its scale: then it is compared as v + s₂ ≥ t + s₁."""
    drawn, search = [], AboveThreshold(0.5, 0.25, 3.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "discrete_laplace", lambda scale, entropy: drawn.append(scale) or scale)
        assert search.first_above([-6.1, -6.1, -5.9, 7.0], 0.0) == 2  # scales of 6 and of 12
    assert drawn == [search.steps(0.5), *[search.steps(0.25)] * 3]


@settings(max_examples=300)
@given(
    value=st.floats(-1e6, 1e6),
    move=st.floats(-1, 1),
    sensitivity=st.floats(-150, 3).map(lambda exponent: 10.0**exponent),
    one=st.floats(-9, 6).map(lambda exponent: 10.0**exponent),
    two=st.floats(-9, 6).map(lambda exponent: 10.0**exponent),
)
def test_noise_covers_what_a_value_moves_on_the_grid(value, move, sensitivity, one, two):
    search = AboveThreshold(one, two, sensitivity)
    moved = value * sensitivity + move * sensitivity
    assume(abs(Fraction(moved) - Fraction(value * sensitivity)) <= Fraction(sensitivity))
    here, there = (selection._on_grid(each, search.grid) for each in (value * sensitivity, moved))
    for epsilon in (one, two):
        scale = search.steps(epsilon)
        assert Fraction(abs(here - there), scale) * (1 + Fraction(1, 10**12)) <= Fraction(epsilon)
        assert scale * search.grid <= sensitivity / epsilon * 1.000001  # and hardly more than that
    assert search.epsilon == one + 2 * two


def test_halves_are_rounded_the_same_way():
    """0.5 and 1.5 steps are one apart; rounded to even they would be two."""
    assert [selection._on_grid(value, 0.25) for value in (0.125, 0.375, -0.125)] == [0, 1, -1]
    assert round(1.5) - round(0.5) == 2


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_a_search_without_an_epsilon_is_refused(epsilon):
    for pair in ((epsilon, 1.0), (1.0, epsilon)):
        with pytest.raises(ValueError, match="epsilon = "):
            AboveThreshold(*pair, 1.0)


def gaussian_first_log_law(values, *, threshold_variance, query_variance, points=2001):
    """ln P(index) and ln P(None) with Gaussian noise and threshold 0, by quadrature over the threshold's noise."""
    noise = np.linspace(-10, 10, points) * math.sqrt(threshold_variance)
    log_weight = stats.norm.logpdf(noise, 0, math.sqrt(threshold_variance)) + math.log(noise[1] - noise[0])
    levels, places = np.unique(values, return_inverse=True)
    gaps = (noise - levels[:, None]) / math.sqrt(query_variance)
    above, below = special.log_ndtr(-gaps), special.log_ndtr(gaps)
    before, result = log_weight, []
    for place in places:
        result.append(special.logsumexp(before + above[place]))
        before = before + below[place]
    return np.array([*result, special.logsumexp(before)])


def test_the_published_gaussian_above_threshold_bound_is_false():
    """DP-BLSGD's Theorem 3: (α, αρ)-RDP with σ₁² = 3/2ρ and σ₂² = 3/ρ, for any number of queries of sensitivity 1.

    4004 queries: 22 blocks of 136 low and 46 high, each block 0.7 above the last. In one world all of a
    block are the same; in the other the low ones are 1 lower and the high ones 1 higher (privacy.md §9.1).
    """
    rho, order = 0.09268, 2
    variances = {"threshold_variance": 3 / (2 * rho), "query_variance": 3 / rho}
    rise = 0.7 * np.repeat(np.arange(22), 182) - 23
    q = gaussian_first_log_law(rise, **variances)
    p = gaussian_first_log_law(rise + np.tile([-1] * 136 + [1] * 46, 22), **variances)
    assert len(rise) == 4004
    assert np.exp(p).sum() == pytest.approx(1, abs=1e-12)
    assert np.exp(q).sum() == pytest.approx(1, abs=1e-12)
    measured, claimed = special.logsumexp(order * p + (1 - order) * q) / (order - 1), order * rho
    assert measured == pytest.approx(0.2976, abs=1e-4)
    assert claimed == pytest.approx(0.1854, abs=1e-4)
    assert measured > 1.6 * claimed


def test_a_short_search_of_the_same_kind_is_within_that_bound():
    """The quadrature can tell the one from the other."""
    rho = 0.09268
    variances = {"threshold_variance": 3 / (2 * rho), "query_variance": 3 / rho}
    q = gaussian_first_log_law(np.zeros(10), **variances)
    p = gaussian_first_log_law(np.tile([-1.0] * 3 + [1.0] * 2, 2), **variances)
    assert special.logsumexp(2 * p - q) < 0.5 * 2 * rho


# --- the number of runs ---------------------------------------------------------------------------------


def law(mean, shape):
    return stats.poisson(mean) if math.isinf(shape) else stats.geom(1 / mean)


LAWS = pytest.mark.parametrize(
    ("mean", "shape"), [(3.0, 1.0), (20.5, 1.0), (1.0, math.inf), (3.0, math.inf), (40.0, math.inf)]
)


@LAWS
def test_tails_are_exact_to_256_bits(mean, shape):
    repetitions = Repetitions.of(mean=mean, shape=shape, total_variation=1e-12)
    with mpmath.workprec(900):
        m, below = mpmath.mpf(mean), mpmath.mpf(0)
        for runs, tail in enumerate(repetitions.tails):
            below += mpmath.exp(-m) * m**runs / mpmath.factorial(runs)
            exact = 1 - below if math.isinf(shape) else (1 - 1 / m) ** runs
            assert abs(tail - exact * 2**256) < 2


@LAWS
def test_the_cap_is_the_least_for_its_total_variation(mean, shape):
    """The cap is the least beyond which no more than the total variation lies."""
    for variation in (1e-3, 1e-12, 1e-60):
        repetitions = Repetitions.of(mean=mean, shape=shape, total_variation=variation)
        beyond = law(mean, shape).sf(repetitions.cap)
        assert beyond <= repetitions.total_variation * (1 + 1e-9) <= variation * (1 + 2e-9)
        assert law(mean, shape).sf(repetitions.cap - 1) > variation * (1 - 1e-9)


@LAWS
def test_numbers_of_runs_have_their_law_and_stay_below_the_cap(mean, shape):
    repetitions, size = Repetitions.of(mean=mean, shape=shape, total_variation=1e-9), 10_000
    drawn = np.array([repetitions.draw() for _ in range(size)])
    assert 0 <= drawn.min() <= drawn.max() <= repetitions.cap
    assert abs(drawn.mean() - mean) < 7 * law(mean, shape).std() / math.sqrt(size)
    cells = np.arange(repetitions.cap + 1)
    observed = np.bincount(drawn, minlength=len(cells))
    assert of_cells(observed, law(mean, shape).pmf(cells)) > ALPHA
    assert of_cells(observed, law(mean * 1.2, shape).pmf(cells)) < ALPHA


def test_a_poisson_number_may_be_none():
    """A geometric number of mean 1 is always 1 and a poisson number may be none."""
    assert {Repetitions.of(mean=1.0, shape=1.0, total_variation=1e-9).draw() for _ in range(100)} == {1}
    poisson = Repetitions.of(mean=1.0, shape=math.inf, total_variation=1e-9)
    assert 0 in {poisson.draw() for _ in range(200)}


@pytest.mark.parametrize("mean", [0.5, 0, 1001, math.nan, math.inf])
def test_a_mean_out_of_range_is_refused(mean):
    with pytest.raises(ValueError, match=r"repetitions = .* must be between 1 and 1000"):
        Repetitions.of(mean=mean, shape=1.0, total_variation=1e-9)


@pytest.mark.parametrize("variation", [0.0, 1e-90, math.nan, 1.0])
def test_a_total_variation_that_256_bits_cannot_keep_is_refused(variation):
    with pytest.raises(ValueError, match=r"cannot be cut off .*choose a smaller epsilon or a larger delta"):
        Repetitions.of(mean=3.0, shape=1.0, total_variation=variation)


# --- tuning plans ---------------------------------------------------------------------------------------

CANDIDATES = ({}, {"regularisation": 0.01}, {"algorithm": "nsgd", "epochs": 3}, {"batch_size": 20, "epochs": 5})
FACTS = Facts(5003, 12)


def tuned(*, facts=FACTS, candidates=CANDIDATES, method="disjoint_portions", **request):
    own = {name: request.pop(name) for name in ("repetitions", "distribution") if name in request}
    return tuning.tuning_plan(
        TuningRequest(
            Request(**{"epsilon": 1.0, "delta": 1e-6, "algorithm": "bolt_on"} | request), candidates, method, **own
        ),
        facts,
    )


def test_disjoint_portions_cost_the_most_expensive_one():
    release_plan = tuned()
    assert release_plan.portions == (1001, 1001, 1001, 1000, 1000)
    assert sum(release_plan.portions) == FACTS.rows
    assert [each.facts.rows for each in release_plan.plans] == list(release_plan.portions[:-1])
    assert release_plan.guarantee == Release(
        DisjointDpEvent(
            (*(each.mechanism.guarantee.event for each in release_plan.plans), ExponentialMechanismDpEvent(1.0))
        ),
        1.0,
        1e-6,
    )
    budget = Budget.of(epsilon=2.0, delta=1e-5)
    alone = [budget.cost(each.mechanism.guarantee) for each in release_plan.plans]
    alone.append(budget.cost(release_plan.selection.guarantee))
    assert budget.cost(release_plan.guarantee) == tuple(max(each) for each in zip(*alone, strict=True))


def test_a_candidate_is_planned_alone_on_its_portion():
    release_plan = tuned()
    request = Request(1.0, 1e-6, algorithm="nsgd", epochs=3)
    alone = tuning.catalogue.plan(request, Facts(1001, 12))
    assert release_plan.plans[2].mechanism == alone.mechanism


def test_without_a_delta_portions_are_pure():
    release_plan = tuned(delta=0.0, candidates=({}, {"regularisation": 0.01}))
    assert (release_plan.guarantee.epsilon, release_plan.guarantee.delta) == (1.0, 0.0)
    assert Budget.of(epsilon=1.0, delta=0.0, mode="basic").cost(release_plan.guarantee) == (10**9, 0)


def their_epsilon(release_plan, delta):
    """dp_accounting's ε of the whole: every run is the dearer of a Gaussian and a zCDP score."""
    event, orders = release_plan.guarantee.event, 1 + np.geomspace(1e-2, 1e4, 500)
    multiplier = event.repeated.events[0].noise_multiplier
    assert event.repeated.events[1].rho == pytest.approx(1 / (2 * multiplier**2), rel=1e-12)
    accountant = RdpAccountant(orders)
    accountant.compose(theirs.RepeatAndSelectDpEvent(theirs.GaussianDpEvent(multiplier), event.mean, event.shape))
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize(("distribution", "epsilon"), a_third_quick(["geometric", "poisson"], [0.3, 1.0, 6.0]))
def test_random_repetitions_are_as_dp_accounting_says(epsilon, distribution):
    release_plan = tuned(method="random_repetition", distribution=distribution, epsilon=epsilon)
    event = release_plan.guarantee.event
    assert isinstance(event, RepeatAndSelectDpEvent)
    assert (event.mean, event.shape) == (4.0, {"geometric": 1.0, "poisson": math.inf}[distribution])
    leaked = (1 + math.exp(epsilon)) * event.total_variation
    assert leaked <= 0.001 * 1e-6 * (1 + 1e-9)
    assert 0.998 * epsilon < their_epsilon(release_plan, 1e-6 - leaked) <= epsilon * 1.0005
    assert least_epsilon(event, 1e-6 - leaked) <= epsilon


def test_every_run_of_a_repetition_has_its_claimed_noise():
    release_plan = tuned(method="random_repetition", candidates=({}, {"epochs": 2}, {"algorithm": "rsgd_ar"}))
    (gaussian, zcdp) = release_plan.guarantee.event.repeated.events
    assert release_plan.portions == (4003, 1000)
    for each in release_plan.plans:
        assert each.facts.rows == 4003
        assert each.calibration == "worst_position"  # one order of the rows for all runs
        alone = each.sensitivity.total
        assert each.mechanism.noise_scale >= gaussian.noise_multiplier * alone
        assert each.mechanism.noise_scale <= gaussian.noise_multiplier * alone * 1.000001
    assert 1 / (2 * release_plan.score.noise_scale**2) <= zcdp.rho  # a count of errors, sensitivity 1
    assert release_plan.repetitions.cap == release_plan.explain()["runs"]


def test_more_runs_need_more_noise():
    noises = [
        tuned(method="random_repetition", repetitions=mean).plans[0].mechanism.noise_scale for mean in (1.0, 4.0, 100.0)
    ]
    assert noises == sorted(noises)
    assert noises[2] > 1.3 * noises[0]


@pytest.mark.parametrize("method", METHODS)
def test_a_tuning_explains_itself_and_survives_the_ledger(method):
    release_plan = tuned(method=method)
    explained = release_plan.explain()
    assert json.loads(json.dumps(explained, allow_nan=False)) == explained
    assert explained["neighbours"] == "replace-one"
    assert sum(explained["portions"]) == FACTS.rows
    assert len(explained["plans"]) == len(CANDIDATES)
    assert (explained["epsilon"], explained["delta"]) == (1.0, 1e-6)
    assert Release.from_data(json.loads(json.dumps(release_plan.guarantee.as_data()))) == release_plan.guarantee


def test_classes_are_tuned_together():
    release_plan = tuned(facts=Facts(5003, 12, 5))
    assert all(each.facts.outputs == 5 for each in release_plan.plans)


def test_a_large_epsilon_is_planned_or_refused_in_moments():
    assert tuned(method="random_repetition", epsilon=100.0).repetitions.cap < 1000
    with pytest.raises(ValueError, match="choose a smaller epsilon"):
        tuned(method="random_repetition", epsilon=300.0)


REFUSED = [
    ({"method": "grid"}, r"method 'grid' is unknown; choose one of disjoint_portions"),
    ({"facts": Facts(100, 3, 1, False)}, r"tuning counts wrongly classified rows"),
    ({"candidates": ()}, r"0 candidates are out of range; give 1 to 100"),
    ({"candidates": ({},) * 101}, r"101 candidates are out of range"),
    ({"candidates": ({"epsilon": 2.0},)}, r"sets epsilon; it may set algorithm"),
    ({"candidates": ({"speed": 2.0},)}, r"sets speed; it may set"),
    ({"candidates": ({"algorithm": "adam"},)}, r"algorithm 'adam' is unknown"),
    ({"candidates": ({"step_size": "0.1"},)}, r"step_size = '0.1' must be a number"),
    (
        {"method": "random_repetition", "epsilon": 1e-9},
        r"no noise up to 1e\+150 .* suffices; choose a larger epsilon or delta",
    ),
    ({"shards": 2}, r"tuning trains on one shard"),
    ({"permutation": "fresh"}, r"tuning trains on one shard over one permutation"),
    ({"facts": Facts(4, 3)}, r"4 rows cannot be split into 5 portions; give fewer candidates"),
    ({"repetitions": 3.0}, r"belong to method 'random_repetition'; leave them out"),
    ({"distribution": "poisson"}, r"belong to method 'random_repetition'; leave them out"),
    (
        {"method": "random_repetition", "distribution": "normal"},
        r"distribution 'normal' is unknown; choose one of geometric, poisson",
    ),
    ({"method": "random_repetition", "repetitions": 1e4}, r"repetitions = 10000.0 on average"),
    ({"method": "random_repetition", "delta": 0.0}, r"needs a delta > 0; give one, or choose 'disjoint_portions'"),
    (
        {"method": "random_repetition", "mechanism": "discrete_gaussian"},
        r"has mechanism 'gaussian' and calibration 'worst_position' in every run",
    ),
    (
        {"method": "random_repetition", "candidates": ({"calibration": "hockey_stick"},)},
        r"since all runs share one order; leave both out, or choose 'disjoint_portions'",
    ),
    ({"method": "random_repetition", "facts": Facts(1, 3)}, r"1 rows cannot be split"),
    ({"method": "random_repetition", "delta": 2.0}, r"delta = 2.0 must be at least 0 and below 1"),
]


def test_what_cannot_be_tuned_is_refused_with_a_remedy():
    for request_, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            tuned(**request_)


@pytest.mark.parametrize("mode", ["renyi", "zcdp"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0])
def test_a_choice_adds_nothing_to_the_charge_by_default(mode, epsilon):
    """At the full ε it costs 2.5 to 6 times what the trainings do; one percent more than the default costs more."""
    budget = Budget.of(epsilon=4.0, delta=1e-6, mode=mode)
    base = Request(epsilon, 1e-7, "bolt_on", calibration="worst_position")

    def charged(**more):
        request = TuningRequest(base, ({"regularisation": 0.1}, {"regularisation": 0.01}), **more)
        planned = tuning.tuning_plan(request, Facts(20_000, 20, budget=budget))
        return planned, budget.cost(planned.guarantee)[0]

    planned, charge = charged()
    trained = max(budget.cost(each.guarantee)[0] for each in planned.plans)
    assert charge == trained
    assert charged(selection_epsilon=planned.selection.epsilon * 1.01)[1] > trained
    assert 2.5 < charged(selection_epsilon=epsilon)[1] / trained < 6.1
    assert planned.guarantee.epsilon == epsilon


def test_a_choice_charged_as_a_whole_has_all_of_epsilon():
    candidates = ({"regularisation": 0.1}, {})
    request = TuningRequest(Request(1.0, 1e-7, "bolt_on"), candidates)
    basic = Budget.of(epsilon=4.0, delta=1e-6, mode="basic")
    assert tuning.tuning_plan(request, Facts(20_000, 20, budget=basic)).selection.epsilon == 1
    assert tuning.tuning_plan(request, Facts(20_000, 20)).selection.epsilon == 1
    renyi = Budget.of(epsilon=4.0, delta=1e-6)
    units = tuning.tuning_plan(request, Facts(20_000, 20, unit_rows=4, budget=renyi))
    assert units.selection.epsilon == 0.25
    asked = tuning.tuning_plan(replace(request, selection_epsilon=0.5), Facts(20_000, 20, unit_rows=4, budget=renyi))
    assert asked.selection.epsilon == 0.125  # 0.5 of a unit


@pytest.mark.parametrize("method", tuning.METHODS)
def test_no_algorithm_that_adds_noise_while_it_trains_is_tuned(method):
    for algorithm in set(NOISY_WHILE_TRAINING) - {"preconditioned_gd", "private_splines"}:
        with pytest.raises(ValueError, match=f"'{algorithm}' adds noise while it trains, and .*choose"):
            tuned(method=method, candidates=({"algorithm": algorithm},))
    with pytest.raises(ValueError, match=f"method '{method}' does not tune preconditioned_gd; leave method out"):
        tuned(method=method, candidates=({"algorithm": "preconditioned_gd"},))


@pytest.mark.parametrize("candidates", ["3", '{"regularisation": 1}', "[1]", "[{]", "", 3, [[]]])
def test_candidates_that_are_no_list_of_objects_are_refused(candidates):
    with pytest.raises(ValueError, match="give a list of objects"):
        tuning.parsed(candidates)


def test_candidates_are_read_from_json_or_taken_as_they_are():
    assert tuning.parsed('[{"regularisation": 0.01}, {}]') == ({"regularisation": 0.01}, {})
    assert tuning.parsed([{"epochs": 3}]) == ({"epochs": 3},)
