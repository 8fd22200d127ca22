"""Poisson samples of a public size: the leak from cutting them is bounded and charged; their true size is secret."""

import json
import math
from dataclasses import replace
from itertools import product

import mpmath
import numpy as np
import pytest
from pairs import pairwise
from scipy import stats

from dbdp.algorithms import NOISY_WHILE_TRAINING, Facts, Request, plan
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.events import PaddedDpEvent, PoissonGaussianDpEvent, Release, exceedance
from dbdp.privacy.accounting.padding import GROUP, LEAKED, MOST_PACKED, PoissonSamples, binomial_tail, padded_samples
from dbdp.privacy.accounting.subsampling import poisson_gaussian_multiplier

PROBABILITIES = (1e-6, 1e-3, 0.02, 0.1, 0.5, 0.9, 0.999, 1.0)


def exact_tail(rows, probability, most):
    """P(Bin(n, q) > M) of the very float q, to 60 digits."""
    with mpmath.workdps(60):
        q, total = mpmath.mpf(probability), mpmath.mpf(0)
        term = mpmath.binomial(rows, most + 1) * q ** (most + 1) * (1 - q) ** (rows - most - 1)
        for hit in range(most + 1, rows + 1):
            total += term
            if term < total * mpmath.mpf(10) ** -40 and hit > rows * q:
                break
            term = term * (rows - hit) / (hit + 1) * q / (1 - q) if q < 1 else mpmath.mpf(hit + 1 == rows)
        return total


@pytest.mark.parametrize("rows", [1, 2, 10, 100, 1000, 12_345])
def test_the_tail_is_nearly_the_exact_one_and_above_it(rows):
    """Chernoff's bound is off by at most √(8n)·e, of a probability that may be 1e-200: Stirling's formula."""
    compared = 0
    for probability, deviations in product(PROBABILITIES, (0.5, 2, 5, 10, 20, 30)):
        mean = rows * probability
        most = math.floor(mean + deviations * math.sqrt(mean * (1 - probability)) + 0.5)
        if most < rows and probability < 1:
            bound, exact = binomial_tail(rows, probability, most), exact_tail(rows, probability, most)
            assert bound >= exact
            if exact > 1e-280:
                assert bound <= exact * 3 * math.sqrt(8 * rows)
                compared += bound < 1
        assert binomial_tail(rows, probability, rows) == 0.0
    assert compared > 4 or rows < 100


def test_a_tail_is_a_bound_at_both_ends():
    """A tail is a bound where it is too small for a float and where it is none."""
    assert binomial_tail(10**9, 1e-3, 5 * 10**8) == 1e-300
    assert binomial_tail(1000, 0.5, 499) == 1.0
    assert binomial_tail(10**15, 0.5, 5 * 10**14 + 3 * 10**8) == pytest.approx(math.exp(-(9e16 * 2 / 1e15)), rel=1e-3)


@pairwise(
    rows=[40, 1000, 10**5, 10**8],
    probability=[1e-4, 0.02, 0.5, 0.99, 1.0],
    promise=[(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5), (50.0, 1e-6), (600.0, 1e-6)],
)
def test_the_size_is_the_least_that_leaks_little(rows, probability, promise):
    """The size is the least whose leak is a thousandth of delta."""
    epsilon, delta = promise
    samples, mean = padded_samples(rows, probability, 300, epsilon=epsilon, delta=delta), rows * probability
    least = min(rows, math.ceil(mean + 8 * math.sqrt(mean) + 32))
    assert least <= samples.size <= rows
    assert samples.leak(epsilon) <= delta * LEAKED
    assert samples.leak(epsilon) >= min(1.0, (1 + math.exp(min(epsilon, 500))) * samples.total_variation)
    if samples.size > least:
        assert replace(samples, size=samples.size - 1).leak(epsilon) > delta * LEAKED


def test_a_release_without_delta_cuts_nothing():
    assert padded_samples(10**6, 1e-3, 10, epsilon=1.0, delta=0.0).size == 10**6
    release_plan = plan(Request(1.0, 0.0, algorithm="privgene", batch_size=10), Facts(500, 3))
    assert release_plan.details["padded_size"] == 500
    assert release_plan.details["padding_leak"] == release_plan.guarantee.delta == 0.0


@pytest.mark.parametrize(("probability", "delta"), [(1.0, 1e-6), (1e-6, 0.0)])
def test_samples_too_large_to_pack_are_refused_by_the_plan(probability, delta):
    """A capacity may be 10¹² rows. The control: a small mini-batch of as many."""
    with pytest.raises(ValueError, match=f"above the limit of {MOST_PACKED}; choose a smaller batch_size"):
        padded_samples(10**12, probability, 10, epsilon=1.0, delta=delta)
    assert padded_samples(10**12, 1e-6, 10, epsilon=1.0, delta=1e-6).size < 2 * 10**6


@pytest.mark.parametrize("size", [0, -1, 101])
def test_a_size_out_of_range_is_refused(size):
    with pytest.raises(ValueError, match=f"size = {size} of a mini-batch must be from 1 to the 100 rows"):
        PoissonSamples(100, 0.1, 3, size)


def test_a_size_that_is_too_small_is_charged_all_that_it_leaks():
    """The leak is no statement of whoever plans: it follows from the size, and no budget covers that of a small one."""
    small = PoissonSamples(1000, 0.1, 10, 110)
    event = small.event(PoissonGaussianDpEvent(0.1, 5.0, 10))
    assert small.total_variation >= min(1, 10 * exact_tail(1000, 0.1, 110))
    assert event.leak(1.0) >= min(1, small.total_variation * (1 + math.e))
    _, leaks = Budget.of(epsilon=1.0, delta=1e-6).cost(Release(event, 1.0, 1e-6))
    assert leaks > Budget.of(epsilon=1.0, delta=1e-6).leak_limit
    assert PoissonSamples(1000, 0.1, 10, 1000).event(event.event) == event.event  # nothing is cut


def needed(rows, probability, steps):
    """The law of the rows that so many samples need together: P(0), P(GROUP), …, to 1e-13 or so."""
    counts = stats.binom(rows, probability).pmf(np.arange(rows + 1))
    groups = -(-np.arange(rows + 1) // GROUP)
    law, one = np.ones(1), np.bincount(groups, weights=counts)
    for _ in range(steps):
        law = np.convolve(law, one)
    return law


@pairwise(
    steps=[1, 2, 7, 40],
    drawn=[(30, 0.02), (40, 0.1), (200, 0.25), (200, 0.5), (100, 0.97), (12, 1.0)],
    deviations=[2, 3, 5],
)
def test_samples_together_hardly_ever_exceed_their_number(steps, drawn, deviations):
    """Less often than the leak has it that some sample is above the size by itself. A control: half of them do."""
    rows, probability = drawn
    mean = rows * probability
    size = min(rows, math.ceil(mean + deviations * math.sqrt(mean * (1 - probability)) + 1))
    samples, law = PoissonSamples(rows, probability, steps, size), needed(rows, probability, steps)
    together = samples.together(steps)
    assert together % GROUP == 0
    assert together <= steps * GROUP * math.ceil(size / GROUP)
    assert law[together // GROUP + 1 :].sum() <= samples.total_variation + 1e-12
    if probability < 1:
        average = int(law @ np.arange(len(law)))
        assert law[average:].sum() > 0.3


def test_samples_together_take_little_more_than_what_is_drawn():
    samples = padded_samples(500_000, 1e-4, 10_000, epsilon=1.0, delta=1e-6)
    drawn = 10_000 * 50
    assert 10_000 * samples.size > 2.7 * drawn
    assert samples.together(10_000) < 1.05 * drawn
    assert samples.together(10_000) >= drawn + 8 * math.sqrt(drawn) + 32
    assert padded_samples(1000, 0.1, 10, epsilon=1.0, delta=0.0).together(10) == 10_000  # nothing may be cut


def test_an_event_of_padded_samples_survives_the_ledger():
    release = Release(PaddedDpEvent(PoissonGaussianDpEvent(0.1, 5.0, 10), 1e-12), 1.0, 1e-6)
    assert Release.from_data(json.loads(json.dumps(release.as_data()))) == release


SAMPLED = {
    **{name: {"epochs": 2} for name in ("bst14", "dp_sgd", "dp_adam", "sgd_adv", "rrpsgd")},
    **{name: {"settings": '{"planned_steps": 5}'} for name in ("dp_blsgd", "dp_blsgd_ac")},
    "dp_agd": {"settings": '{"splits": 5}'},
    "privgene": {"settings": '{"generations": 3, "population": 20}'},
}


def test_every_algorithm_that_samples_is_among_these():
    """By what they say of themselves: asked for mini-batches, they draw Poisson samples of a public size."""
    sampling = set()
    for name in NOISY_WHILE_TRAINING:
        try:
            observed = plan(Request(1.0, 1e-6, algorithm=name, batch_size=50), Facts(2000, 3)).details
        except ValueError:
            continue  # it has no batch_size
        if observed.get("sampling") == "poisson":
            sampling.add(name)
    assert sampling == set(SAMPLED)


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("unit_rows", [1, 4])
def test_noise_and_leak_share_the_delta_of_every_plan(name, unit_rows):
    """The leak is at most a thousandth of what one row is promised, and no smaller than what the size leaks."""
    request = Request(1.0, 1e-6, algorithm=name, batch_size=50, **SAMPLED[name])
    release_plan = plan(request, Facts(4000, 3, unit_rows=unit_rows))
    epsilon, delta = release_plan.details.get("row_epsilon", 1.0), release_plan.details.get("row_delta", 1e-6)
    size, paid = release_plan.details["padded_size"], release_plan.details["padding_leak"]
    assert 50 + 8 * math.sqrt(50) + 32 <= size < 4000
    assert (1 + math.exp(epsilon)) * exact_tail(4000, 50 / 4000, size) <= paid <= delta * LEAKED
    assert release_plan.guarantee.delta <= 1e-6


@pytest.mark.parametrize("weight", [1.0, 8.0, 40.0])
def test_a_leak_is_small_in_the_budget_that_it_is_charged_to(weight):
    facts = Facts(100_000, 3, budget=Budget.of(epsilon=weight, delta=1e-6))
    release_plan = plan(Request(0.5, 1e-6, algorithm="dp_sgd", batch_size=100), facts)
    assert release_plan.guarantee.event.leak(weight) <= 1e-9


def mixture_delta(epsilon, multiplier, share):
    """δ(ε) of one step given its size: with probability `share` the record is drawn, and a row of +C lacks or not.

    All other rows contribute +C; given S, either the record (-C or +C) is among them, or one of them more:
    (1 - p)N(S) + pN(S - 2) against N(S), in units of C.
    """
    grid = np.linspace(-14 * multiplier - 4, 14 * multiplier + 4, 400_001)
    p = (1 - share) * stats.norm.pdf(grid, 0, multiplier) + share * stats.norm.pdf(grid, -2, multiplier)
    q = stats.norm.pdf(grid, 0, multiplier)
    width = grid[1] - grid[0]
    return max(np.maximum(p - math.exp(epsilon) * q, 0).sum(), np.maximum(q - math.exp(epsilon) * p, 0).sum()) * width


@pytest.mark.parametrize(("epsilon", "probability"), [(1.0, 0.1), (4.0, 0.5), (8.0, 0.1), (8.0, 0.9)])
def test_the_size_does_not_reveal_how_many_rows_were_drawn(epsilon, probability):
    """The attack of §10.8, exactly: rows of +C, one replaced by -C, one step. Given S, δ(ε) is above the claim.

    The noise is that of whole samples whose number is secret. With a public size there is nothing to condition on.
    """
    delta = 1e-6
    multiplier = poisson_gaussian_multiplier(epsilon, delta, probability, 1)
    assert mixture_delta(epsilon, multiplier, probability) > 10 * delta  # S as on average: nothing unlikely happened
    sizes = {padded_samples(3000, probability, 1, epsilon=epsilon, delta=delta).size for _ in range(5)}
    assert len(sizes) == 1
    whole = exact_delta(epsilon, multiplier, probability)
    assert whole + exceedance(PoissonSamples(3000, probability, 1, sizes.pop()).total_variation, epsilon) <= delta


def exact_delta(epsilon, multiplier, probability):
    """δ(ε) of the dominating pair of one step: (1 - q)N(0, σ²) + qN(±1, σ²)."""
    grid = np.linspace(-14 * multiplier - 4, 14 * multiplier + 4, 400_001)
    p, q = (
        (1 - probability) * stats.norm.pdf(grid, 0, multiplier) + probability * stats.norm.pdf(grid, sign, multiplier)
        for sign in (1, -1)
    )
    return np.maximum(p - math.exp(epsilon) * q, 0).sum() * (grid[1] - grid[0])
