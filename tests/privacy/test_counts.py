"""Noise of counts: its law, its tails, and that neighbours of every kind are covered, by brute force on small ones."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from goodness import ALPHA, of_integers, of_reals
from hypothesis import given
from hypothesis import strategies as st
from pairs import pairwise
from scipy import stats

from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.counts import CountGaussian, CountLaplace, count_noise

MOVED = pytest.mark.parametrize("moved", [1, 2, 3])
CELLS = 3


def histograms(records):
    """Counts of every dataset of so many records in three cells or none."""
    result = set()
    for places in itertools.product(range(CELLS + 1), repeat=records):
        result.add(tuple(np.bincount(places, minlength=CELLS + 1)[:CELLS].tolist()))
    return np.array(sorted(result))


def neighbours(moved):
    """Differences of the counts of every pair of datasets that differ in so many records."""
    each = histograms(moved)
    return {tuple(one - other) for one in each for other in each}


# --- neighbours -----------------------------------------------------------------------------------------


@MOVED
def test_counts_of_neighbours_attain_the_assumed_distance(moved):
    shifts = np.array(sorted(neighbours(moved)))
    laplace, gaussian = CountLaplace(2, 1.0, moved), CountGaussian.of(2, 1.0, 1e-6, moved=moved, dimension=CELLS)
    assert np.abs(shifts).sum(axis=1).max() == laplace.sensitivity == 2 * moved
    longest = np.sqrt(np.square(shifts).sum(axis=1)).max()
    assert longest <= gaussian.sensitivity < longest * (1 + 1e-6)
    one = CountLaplace(1, 1.0, moved)
    assert np.abs(shifts[:, 0]).max() == one.sensitivity == moved


@MOVED
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3])
def test_counts_move_a_log_probability_by_epsilon_at_most(moved, epsilon):
    """No neighbour moves the log of a probability by more than epsilon and one does by all of it.

    Exactly: P(k) ∝ e^{-|k|/t}, and |k + s| - |k| is between -|s| and |s|, both of which occur.
    """
    scale, costs = CountLaplace(2, epsilon, moved).scale, []
    for shift in neighbours(moved):
        ratios = [{abs(k + s) - abs(k) for k in range(-4 * moved, 4 * moved + 1)} for s in shift]
        costs.append(sum(max(each) for each in ratios) / scale)
    assert max(costs) <= Fraction(epsilon)
    assert max(costs) <= Fraction(repr(epsilon))
    assert max(costs) >= Fraction(epsilon) * (1 - Fraction(1, 10**15))


@pairwise(moved=[1, 2, 3, 5], order=[1.5, 4.0, 32.0], epsilon=[0.2, 1.0, 5.0])
def test_the_charge_covers_the_divergence_of_every_neighbour(moved, order, epsilon):
    """From the exact law, count by count; the worst is no less than half of it at small epsilon."""
    noise, k = CountLaplace(2, epsilon, moved), np.arange(-4000, 4001)

    def of_one(shift):
        one, other = (-np.abs(k - by) / noise.noise_scale for by in (0, shift))
        normaliser = math.log(math.fsum(np.exp(one)))
        return (math.log(math.fsum(np.exp(order * one + (1 - order) * other))) - normaliser) / (order - 1)

    alone = {shift: of_one(shift) for shift in range(-moved, moved + 1)}
    worst = max(sum(alone[each] for each in shift) for shift in neighbours(moved))
    charge = noise.guarantee.event.divergence(order)
    assert worst <= charge * (1 + 1e-9)
    assert worst > charge / (2 if moved < 5 else 2.5)
    assert CountLaplace(2, epsilon).guarantee.event.divergence(order) == charge
    if moved > 1:  # a release for each record, each of a part of the epsilon, would be charged too little
        assert 2 * moved * CountLaplace(1, epsilon / (2 * moved)).guarantee.event.divergence(order) < worst


@MOVED
def test_rounded_gaussian_counts_have_the_promised_delta(moved):
    """By a sum over all outcomes of two counts, of the neighbours that are furthest apart."""
    epsilon, delta = 1.0, 1e-3
    noise, k = CountGaussian.of(2, epsilon, delta, moved=moved, dimension=2), np.arange(-120, 121)

    def law(shift):
        edges = stats.norm.cdf((np.arange(-120, 122) - 0.5 - shift) / noise.noise_scale)
        return np.diff(edges)

    one, other = (np.outer(law(by), law(-by)) for by in (0, moved))
    result = np.maximum(one - math.exp(epsilon) * other, 0).sum()
    assert len(k) ** 2 == one.size
    assert delta / 2 < result <= delta


# --- the law --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cells", "moved", "epsilon"), [(1, 1, 0.3), (2, 1, 1.0), (1, 5, 0.7), (2, 3, 2.0)])
def test_the_noise_is_discrete_laplace_of_the_reported_scale(cells, moved, epsilon):
    noise, counts = CountLaplace(cells, epsilon, moved), np.arange(10_000)
    sample = (noise.release(counts) - counts).astype(int)
    reach = math.ceil(50 * noise.noise_scale) + 20
    assert noise.noise_scale == pytest.approx(cells * moved / epsilon)
    assert of_integers(sample, lambda k: -np.abs(k) / noise.noise_scale, reach) > ALPHA
    for wrong in (noise.noise_scale * 1.3, noise.noise_scale / 1.3):
        assert of_integers(sample, lambda k: -np.abs(k) / wrong, reach) < ALPHA  # noqa: B023


def test_the_noise_of_a_sum_of_many_steps_has_its_scale_too():
    noise, total = CountLaplace(1, 0.5, 2**21), np.full(10_000, 2**50)
    sample = noise.release(total) - total
    assert of_reals(sample, stats.laplace(scale=2**22)) > ALPHA
    assert of_reals(sample, stats.laplace(scale=2**22 * 1.3)) < ALPHA


def test_with_a_delta_it_is_the_analytic_gaussian_rounded():
    noise, counts = count_noise(1, 0.05, 1e-6, moved=3, dimension=10_000), np.full(10_000, 7)
    result = noise.release(counts) - counts
    assert np.array_equal(result, np.rint(result))
    sigma = 3 * analytic_noise_multiplier(0.05, 1e-6)  # so large that the rounding is not seen
    spread = result + np.random.default_rng().uniform(-0.5, 0.5, result.shape)
    assert of_reals(spread, stats.norm(scale=sigma)) > ALPHA
    for wrong in (sigma * 1.2, sigma / 1.2):
        assert of_reals(spread, stats.norm(scale=wrong)) < ALPHA


# --- tails ----------------------------------------------------------------------------------------------


@given(epsilon=st.floats(1e-2, 5), chance=st.floats(1e-9, 0.4), moved=st.sampled_from([1, 2, 50]))
def test_a_tail_of_laplace_noise_is_the_least(epsilon, chance, moved):
    noise = CountLaplace(2, epsilon, moved)
    tail, q = noise.tail(chance), math.exp(-1 / noise.noise_scale)

    def beyond(least):
        return q**least / (1 + q)  # Σ_{k ≥ least} (1 - q)/(1 + q) qᵏ

    assert beyond(tail) <= chance * (1 + 1e-9)
    assert tail == 1 or beyond(tail - 1) > chance * (1 - 1e-9)


@given(epsilon=st.floats(1e-2, 5), chance=st.floats(1e-9, 0.4))
def test_a_tail_of_gaussian_noise_is_the_least(epsilon, chance):
    noise = CountGaussian.of(2, epsilon, 1e-6, moved=1, dimension=4)
    tail, law = noise.tail(chance), stats.norm(scale=noise.noise_scale)
    assert law.sf(tail - 0.5) <= chance * (1 + 1e-6)
    assert tail == 1 or law.sf(tail - 1.5) > chance * (1 - 1e-6)
