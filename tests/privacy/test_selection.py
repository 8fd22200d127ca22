"""Private choices follow their laws: exact weights, the number of runs, and what a tuning is charged."""

import json
import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as theirs
from dp_accounting.rdp import RdpAccountant
from goodness import ALPHA, of_cells
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dbdp.algorithms import Facts, Request, tuning
from dbdp.algorithms.tuning import METHODS, TuningRequest
from dbdp.privacy.accounting import Budget, least_epsilon
from dbdp.privacy.events import DisjointDpEvent, ExponentialMechanismDpEvent, Release, RepeatAndSelectDpEvent
from dbdp.privacy.selection import ExponentialMechanism, Repetitions

epsilons = st.floats(-9, 6).map(lambda exponent: 10.0**exponent)
counts = st.lists(st.integers(0, 10**6), min_size=1, max_size=8)

# --- the exponential mechanism --------------------------------------------------------------------------


@settings(max_examples=200)
@given(epsilon=epsilons, errors=counts)
def test_the_weights_are_those_of_the_law_up_to_a_millionth_of_epsilon(epsilon, errors):
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
def test_no_record_changes_a_probability_by_more_than_e_to_the_epsilon_exactly(epsilon, base, changes, scale):
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


def test_the_whole_range_is_used():
    """Two candidates that swap places; weights e^(-ε errors) would span 2ε."""
    first, second = (probabilities(ExponentialMechanism(1.0), errors) for errors in ([0, 1], [1, 0]))
    span = math.log(first[0] / second[0]) - math.log(first[1] / second[1])
    assert 0.99999 < span <= 1


@pytest.mark.parametrize(("epsilon", "errors"), [(1.0, [3, 5, 4, 4]), (0.1, [10, 0, 30]), (8.0, [7, 8, 7])])
def test_choices_are_as_frequent_as_their_probabilities(epsilon, errors):
    mechanism, size = ExponentialMechanism(epsilon), 20_000
    found = Counter(mechanism.choose(errors) for _ in range(size))
    observed = np.array([found[candidate] for candidate in range(len(errors))])
    expected = np.array([float(each) for each in probabilities(mechanism, errors)])
    assert of_cells(observed, expected) > ALPHA
    wrong = np.exp(-np.array(errors) * epsilon)  # twice the ε
    assert of_cells(observed, wrong / wrong.sum()) < ALPHA


def test_a_single_candidate_is_chosen_and_hopeless_ones_are_not():
    assert ExponentialMechanism(1.0).choose([17]) == 0
    assert {ExponentialMechanism(1.0).choose([10**6, 0, 10**6]) for _ in range(50)} == {1}


def test_a_choice_is_charged_as_an_exponential_mechanism():
    assert ExponentialMechanism(0.7).guarantee == Release(ExponentialMechanismDpEvent(0.7), 0.7, 0.0)


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
@pytest.mark.parametrize("variation", [1e-3, 1e-12, 1e-60])
def test_the_cap_is_the_least_beyond_which_no_more_than_the_total_variation_lies(mean, shape, variation):
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


def test_a_geometric_number_of_mean_1_is_always_1_and_a_poisson_number_may_be_none():
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
    return tuning.plan(
        TuningRequest(Request(**{"epsilon": 1.0, "delta": 1e-6} | request), candidates, method, **own), facts
    )


def test_disjoint_portions_cost_what_the_dearest_costs():
    made = tuned()
    assert made.portions == (1001, 1001, 1001, 1000, 1000)
    assert sum(made.portions) == FACTS.rows
    assert [each.facts.rows for each in made.plans] == list(made.portions[:-1])
    assert made.guarantee == Release(
        DisjointDpEvent((*(each.mechanism.guarantee.event for each in made.plans), ExponentialMechanismDpEvent(1.0))),
        1.0,
        1e-6,
    )
    budget = Budget.of(epsilon=2.0, delta=1e-5)
    alone = [budget.cost(each.mechanism.guarantee) for each in made.plans]
    alone.append(budget.cost(made.selection.guarantee))
    assert budget.cost(made.guarantee) == tuple(max(each) for each in zip(*alone, strict=True))


def test_a_candidate_is_planned_as_it_would_be_alone_on_its_portion():
    made = tuned()
    request = Request(1.0, 1e-6, algorithm="nsgd", epochs=3)
    alone = tuning.catalogue.plan(request, Facts(1001, 12))
    assert made.plans[2].mechanism == alone.mechanism


def test_without_a_delta_portions_are_pure():
    made = tuned(delta=0.0, candidates=({}, {"regularisation": 0.01}))
    assert (made.guarantee.epsilon, made.guarantee.delta) == (1.0, 0.0)
    assert Budget.of(epsilon=1.0, delta=0.0, mode="basic").cost(made.guarantee) == (10**9, 0)


def their_epsilon(made, delta):
    """dp_accounting's ε of the whole: every run is the dearer of a Gaussian and a zCDP score."""
    event, orders = made.guarantee.event, 1 + np.geomspace(1e-2, 1e4, 500)
    multiplier = event.repeated.events[0].noise_multiplier
    assert event.repeated.events[1].rho == pytest.approx(1 / (2 * multiplier**2), rel=1e-12)
    accountant = RdpAccountant(orders)
    accountant.compose(theirs.RepeatAndSelectDpEvent(theirs.GaussianDpEvent(multiplier), event.mean, event.shape))
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("distribution", ["geometric", "poisson"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 6.0])
def test_random_repetitions_are_as_private_as_dp_accounting_says_and_hardly_more(epsilon, distribution):
    made = tuned(method="random_repetition", distribution=distribution, epsilon=epsilon)
    event = made.guarantee.event
    assert isinstance(event, RepeatAndSelectDpEvent)
    assert (event.mean, event.shape) == (4.0, {"geometric": 1.0, "poisson": math.inf}[distribution])
    leaked = (1 + math.exp(epsilon)) * event.total_variation
    assert leaked <= 0.001 * 1e-6 * (1 + 1e-9)
    assert 0.998 * epsilon < their_epsilon(made, 1e-6 - leaked) <= epsilon * 1.0005
    assert least_epsilon(event, 1e-6 - leaked) <= epsilon


def test_every_run_of_a_repetition_has_the_noise_that_its_event_claims():
    made = tuned(method="random_repetition", candidates=({}, {"epochs": 2}, {"algorithm": "rsgd_ar"}))
    (gaussian, zcdp) = made.guarantee.event.repeated.events
    assert made.portions == (4003, 1000)
    for each in made.plans:
        assert each.facts.rows == 4003
        assert each.calibration == "worst_position"  # one order of the rows for all runs
        alone = each.sensitivity.total
        assert each.mechanism.noise_scale >= gaussian.noise_multiplier * alone
        assert each.mechanism.noise_scale <= gaussian.noise_multiplier * alone * 1.000001
    assert 1 / (2 * made.score.noise_scale**2) <= zcdp.rho  # a count of errors, sensitivity 1
    assert made.repetitions.cap == made.explain()["runs"]


def test_more_runs_need_more_noise():
    noises = [
        tuned(method="random_repetition", repetitions=mean).plans[0].mechanism.noise_scale for mean in (1.0, 4.0, 100.0)
    ]
    assert noises == sorted(noises)
    assert noises[2] > 1.3 * noises[0]


@pytest.mark.parametrize("method", METHODS)
def test_a_tuning_explains_itself_and_survives_the_ledger(method):
    made = tuned(method=method)
    explained = made.explain()
    assert json.loads(json.dumps(explained, allow_nan=False)) == explained
    assert explained["neighbours"] == "replace-one"
    assert sum(explained["portions"]) == FACTS.rows
    assert len(explained["plans"]) == len(CANDIDATES)
    assert (explained["epsilon"], explained["delta"]) == (1.0, 1e-6)
    assert Release.from_data(json.loads(json.dumps(made.guarantee.as_data()))) == made.guarantee


def test_classes_are_tuned_together():
    made = tuned(facts=Facts(5003, 12, 5))
    assert all(each.facts.outputs == 5 for each in made.plans)


def test_a_large_epsilon_is_planned_or_refused_in_moments():
    assert tuned(method="random_repetition", epsilon=100.0).repetitions.cap < 1000
    with pytest.raises(ValueError, match="choose a smaller epsilon"):
        tuned(method="random_repetition", epsilon=300.0)


REFUSED = {
    "an unknown method": ({"method": "grid"}, r"method 'grid' is unknown; choose one of disjoint_portions"),
    "a number to learn": ({"facts": Facts(100, 3, 1, False)}, r"tuning counts wrongly classified rows"),
    "no candidate": ({"candidates": ()}, r"0 candidates were given; give 1 to 100"),
    "too many candidates": ({"candidates": ({},) * 101}, r"101 candidates were given"),
    "a candidate's own epsilon": ({"candidates": ({"epsilon": 2.0},)}, r"sets epsilon; it may set algorithm"),
    "an unknown setting": ({"candidates": ({"speed": 2.0},)}, r"sets speed; it may set"),
    "a bad setting": ({"candidates": ({"epochs": 0},)}, r"epochs = 0 must be a whole number"),
    "an unknown algorithm": ({"candidates": ({"algorithm": "adam"},)}, r"algorithm 'adam' is unknown"),
    "a word for a number": ({"candidates": ({"step_size": "0.1"},)}, r"step_size = '0.1' must be a number"),
    "a number for a word": ({"candidates": ({"algorithm": ["nsgd"]},)}, r"algorithm = \['nsgd'\] must be a word"),
    "an epsilon too small for repetitions": (
        {"method": "random_repetition", "epsilon": 1e-9},
        r"no noise up to 1e\+150 .* suffices; choose a larger epsilon or delta",
    ),
    "shards": ({"shards": 2}, r"tuning trains on one shard"),
    "fresh permutations": ({"permutation": "fresh"}, r"tuning trains on one shard over one permutation"),
    "a stop that depends on the data": (
        {"candidates": ({"tolerance": 0.1},)},
        r"tolerance = 0.1: a stop .* is refused",
    ),
    "too few rows": ({"facts": Facts(4, 3)}, r"4 rows cannot be split into 5 portions; give fewer candidates"),
    "repetitions of portions": ({"repetitions": 3.0}, r"belong to method 'random_repetition'; leave them out"),
    "a law of portions": ({"distribution": "poisson"}, r"belong to method 'random_repetition'; leave them out"),
    "an unknown law": (
        {"method": "random_repetition", "distribution": "normal"},
        r"distribution 'normal' is unknown; choose one of geometric, poisson",
    ),
    "too many repetitions": ({"method": "random_repetition", "repetitions": 1e4}, r"repetitions = 10000.0 must be"),
    "repetitions without a delta": (
        {"method": "random_repetition", "delta": 0.0},
        r"needs a delta > 0; give one, or choose 'disjoint_portions'",
    ),
    "repetitions of other noise": (
        {"method": "random_repetition", "mechanism": "discrete_gaussian"},
        r"has mechanism 'gaussian' and calibration 'worst_position' in every run",
    ),
    "repetitions of a mixture": (
        {"method": "random_repetition", "candidates": ({"calibration": "hockey_stick"},)},
        r"since all runs share one order; leave both out, or choose 'disjoint_portions'",
    ),
    "repetitions of one row": ({"method": "random_repetition", "facts": Facts(1, 3)}, r"1 rows cannot be split"),
    "an epsilon of nothing": ({"method": "random_repetition", "epsilon": 0.0}, r"epsilon = 0.0 must be positive"),
    "an epsilon that is no number": ({"method": "random_repetition", "epsilon": math.nan}, r"epsilon = nan must be"),
    "a delta of 2": ({"method": "random_repetition", "delta": 2.0}, r"delta = 2.0 must be at least 0 and below 1"),
}


@pytest.mark.parametrize(("request_", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_tuned_is_refused_with_the_value_and_the_remedy(request_, message):
    with pytest.raises(ValueError, match=message):
        tuned(**request_)


@pytest.mark.parametrize("candidates", ["3", '{"regularisation": 1}', "[1]", "[{]", "", 3, [[]]])
def test_candidates_that_are_no_list_of_objects_are_refused(candidates):
    with pytest.raises(ValueError, match="give a list of objects"):
        tuning.parsed(candidates)


def test_candidates_are_read_from_json_or_taken_as_they_are():
    assert tuning.parsed('[{"regularisation": 0.01}, {}]') == ({"regularisation": 0.01}, {})
    assert tuning.parsed([{"epochs": 3}]) == ({"epochs": 3},)
