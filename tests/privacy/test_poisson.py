"""Poisson samples: every row takes part in every step with exactly its probability, independently of all else."""

import math
import os
import random
import tracemalloc
from itertools import pairwise
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from goodness import ALPHA
from hypothesis import example, given
from hypothesis import strategies as st
from pairs import each_value_quick
from scipy import stats

from dbdp.privacy import shuffling

ROUNDING = 2.0**-53


def p_value(counts, probabilities):
    """Neither too far from what is expected, nor too near to it; rare cells are taken together."""
    expected = np.asarray(probabilities) * np.sum(counts)
    rare = expected < 20
    rare[np.argmin(np.where(rare, np.inf, expected))] |= expected[rare].sum() < 20
    counts, expected = (np.append(each[~rare], each[rare].sum()) for each in (np.asarray(counts), expected))
    statistic, degrees = ((counts - expected) ** 2 / expected).sum(), len(counts) - 1
    return 2 * min(stats.chi2.sf(statistic, degrees), stats.chi2.cdf(statistic, degrees))


def of_gaps(sample, probability):
    """p-value of numbers of misses before a hit, in cells of about equal weight."""
    law = stats.geom(probability, loc=-1)
    borders = np.unique([-1.0, *law.ppf(np.linspace(0, 1, 31)[1:-1]), np.inf])
    counts = np.histogram(np.asarray(sample, np.float64), borders + 0.5)[0]
    return p_value(counts, np.diff([0.0, *law.cdf(borders[1:])]))


@pytest.mark.parametrize("probability", [1e-9, 1e-3, 0.05, 0.5])
def test_gaps_are_geometric(probability):
    sample = shuffling._gaps(200_000, probability)
    assert of_gaps(sample, probability) > ALPHA
    assert of_gaps(sample, probability * 0.95) < ALPHA  # a little less would be seen
    assert of_gaps(sample, probability * 1.05) < ALPHA  # and a little more


def of_few_misses(sample, miss):
    binomial = stats.binom(len(sample), miss)
    count = np.count_nonzero(sample)
    return 2 * min(binomial.sf(count - 1), binomial.cdf(count))


@pytest.mark.parametrize("probability", [1 - 2.0**-8, 1 - 2.0**-11])
def test_gaps_of_a_probability_near_one_are_rare_enough(probability):
    sample, miss = shuffling._gaps(1_000_000, probability), 1 - probability
    assert of_few_misses(sample, miss) > ALPHA
    assert of_few_misses(sample, miss / 2) < ALPHA
    assert of_few_misses(sample, miss * 2) < ALPHA


def test_the_largest_probability_misses_with_what_is_left():
    """Only a number below 2⁻⁵³ misses: 52 bits are zero, and the next one."""
    probability = 1 - 2.0**-53
    assert not shuffling._gaps(100_000, probability).any()
    result = {}
    for word in (2**11 - 1, 2**11, 2**12):
        with patch.object(shuffling.os, "urandom", return_value=word.to_bytes(8, "little")):
            result[word] = shuffling._gaps(1, probability).tolist()
    assert result == {2**11 - 1: [1], 2**11: [0], 2**12: [0]}


def sets(many, few, among_many, among_few):
    """How often each set of the few is hit together, among the many."""
    numbers = np.zeros(many, np.int64)
    np.add.at(numbers, among_many, 1 << among_few)
    return np.bincount(numbers, minlength=1 << few)


def of_sets(few, probability):
    """Probability of each set of independent hits."""
    sizes = np.array([number.bit_count() for number in range(1 << few)])
    return probability**sizes * (1 - probability) ** (few - sizes)


PROBABILITIES = (0.15, 0.6)
DRAWS = {  # cells that are counted through, and hits that are given, at a time
    "as it is": (shuffling._MOST_CELLS, 65_536),
    "few hits at a time": (shuffling._MOST_CELLS, 2),
    "two rows at a time": (11, 65_536),
    "one row at a time": (5, 3),
}


def drawn(rows, steps, probability, how):
    cells, most = DRAWS[how]
    with patch.object(shuffling, "_MOST_CELLS", cells):
        result = list(shuffling.hits(rows, steps, probability, most))
    assert all(len(row) == len(step) <= most for row, step in result)
    return tuple(np.concatenate(each) for each in zip(*result, strict=True))


@pytest.mark.parametrize(("how", "probability"), each_value_quick(list(DRAWS), PROBABILITIES))
def test_the_steps_of_a_row_are_independent(how, probability):
    """All 32 sets of steps that a row can take part in: each step's probability, and every dependence."""
    rows = 20_000 if how == "as it is" else 8000
    row, step = drawn(rows, 5, probability, how)
    counts = sets(rows, 5, row, step)
    assert p_value(counts, of_sets(5, probability)) > ALPHA
    assert p_value(counts, of_sets(5, probability * 0.8)) < ALPHA
    assert p_value(counts, of_sets(5, probability * 1.2)) < ALPHA


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_the_rows_of_a_step_are_independent(probability):
    row, step = shuffling.participation(5, 20_000, probability)
    counts = sets(20_000, 5, step, row)
    assert p_value(counts, of_sets(5, probability)) > ALPHA
    assert p_value(counts, of_sets(5, probability * 0.8)) < ALPHA
    assert p_value(counts, of_sets(5, probability * 1.2)) < ALPHA


def test_shared_coins_and_batches_of_one_size_would_be_seen():
    coins = np.random.default_rng()
    hit = coins.random((20_000, 5)) < 0.2
    hit[:, 1] = np.where(coins.random(20_000) < 0.2, hit[:, 0], hit[:, 1])  # one in five takes its neighbour's
    assert p_value(sets(20_000, 5, *np.nonzero(hit)), of_sets(5, 0.2)) < ALPHA
    assert p_value(np.bincount(np.full(3000, 100), minlength=501), stats.binom(500, 0.2).pmf(np.arange(501))) < ALPHA


@pytest.mark.parametrize(("rows", "steps"), [(500, 3000), (20_000, 1)])
def test_the_size_of_a_step_is_binomial(rows, steps):
    sizes = [np.bincount(shuffling.participation(rows, steps, 0.2)[1], minlength=steps) for _ in range(3000 // steps)]
    counts = np.bincount(np.concatenate(sizes), minlength=rows + 1)
    near = np.arange(rows + 1)
    assert p_value(counts, stats.binom(rows, 0.2).pmf(near)) > ALPHA
    assert p_value(counts, stats.binom(rows, 0.2 * 0.95).pmf(near)) < ALPHA
    assert p_value(counts, stats.binom(rows, 0.2 * 1.05).pmf(near)) < ALPHA


@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (7, 3), (70_000, 2), (2, 70_000), (0, 5)])
def test_a_probability_of_one_takes_everything_once(rows, steps):
    for probability in (1, 1.0):
        row, step = shuffling.participation(rows, steps, probability)
        assert (row == np.repeat(np.arange(rows), steps)).all()
        assert (step == np.tile(np.arange(steps), rows)).all()


@pytest.mark.parametrize(
    ("rows", "steps", "probability"),
    [(2**31, 2**20, 1e-12), (2**50, 2**5, 1e-13), (3, 2**46, 1e-11), (2**46, 1, 1e-11), (10**5, 10**4, 1e-6)],
)
def test_a_huge_number_of_cells_is_drawn_from_without_overflow(rows, steps, probability):
    shuffling.participation(1000, 1000, 1e-4)  # imports what it needs
    tracemalloc.start()
    row, step = shuffling.participation(rows, steps, probability)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000 + 1000 * len(row)  # as much as the hits
    mean = rows * steps * probability
    assert 2 * min(stats.poisson(mean).sf(len(row) - 1), stats.poisson(mean).cdf(len(row))) > ALPHA
    cells = [int(one) * steps + int(other) for one, other in zip(row, step, strict=True)]
    assert all(a < b for a, b in pairwise(cells))
    assert cells[0] >= 0
    assert cells[-1] < rows * steps
    assert p_value(np.bincount([cell * 8 // (rows * steps) for cell in cells], minlength=8), np.full(8, 1 / 8)) > ALPHA


@pytest.mark.parametrize("probability", [1e-300, 2.0**-1074])
def test_a_probability_without_hope_takes_nothing(probability):
    row, step = shuffling.participation(1000, 1000, probability)
    assert len(row) == len(step) == 0


def exact_gap(probability, low, bits):
    """The gap of all numbers from low·2^-bits to (low + 1)·2^-bits by mpmath, None if they have several."""
    with mpmath.workprec(bits + 200):
        miss = mpmath.log1p(-mpmath.mpf(probability))
        ends = [
            mpmath.floor(mpmath.log(mpmath.ldexp(low + more, -bits)) / miss) if low + more else None for more in (0, 1)
        ]
    return None if ends[0] is None or ends[0] > ends[1] else int(ends[0])


BORDERS = [(0.5, 1), (0.5, 3), (0.25, 7), (0.9, 2), (5e-4, 1), (5e-4, 2000), (5e-4, 20_000), (1e-9, 7), (1e-9, 10**9)]
BORDERS += [(1e-9, 3 * 10**10), (1 - 2.0**-20, 2), (2.0**-52, 3), (1e-13, 10**13), (math.nextafter(0.5, 1), 40)]


@pytest.mark.parametrize(("probability", "gap"), BORDERS)
def test_a_number_beside_a_border_takes_more_bits(probability, gap):
    """Numbers within 2⁻³¹⁷ of (1 - q)^k, below it (gap k) and above it (k - 1)."""
    bits = 320
    with mpmath.workprec(2 * bits + 4096):
        border = int(mpmath.floor(mpmath.ldexp((1 - mpmath.mpf(probability)) ** gap, bits)))
    for beside, less in ((-2, 0), (1, 1)):
        number = border + beside
        words = [(number >> shift) % 2**64 for shift in range(bits - 64, -64, -64)]
        with patch.object(
            shuffling.os, "urandom", side_effect=[word.to_bytes(8, "little") for word in words]
        ) as urandom:
            assert shuffling._gaps(1, probability).tolist() == [gap - less]
        assert urandom.call_count >= 4
        assert exact_gap(probability, number, bits) == gap - less


@pytest.mark.parametrize("probability", [1e-13, 1e-9, 5e-4, 0.01, 0.3, 0.5, 0.999])
def test_every_gap_is_the_one_of_mpmath_also_near_a_border(probability):
    """64 bits at random, and at all distances from some borders; what they leave open is not compared."""
    words = np.frombuffer(os.urandom(8 * 300), np.uint64).tolist()
    with mpmath.workprec(200):
        tops = [mpmath.floor(mpmath.ldexp((1 - mpmath.mpf(probability)) ** gap, 64)) for gap in (1, 2, 3, 40, 999)]
    words += [int(top) + sign * 2**power for top in tops for power in range(40) for sign in (-1, 1)]
    words = [word for word in [*words, 0, 1, 2**12 - 1, 2**12, 2**64 - 1] if 0 <= word < 2**64]
    expected = [exact_gap(probability, word, 64) for word in words]
    drawn = np.array(words, "<u8").tobytes()
    with patch.object(shuffling.os, "urandom", side_effect=lambda count: drawn if count > 8 else os.getrandom(count)):
        result = shuffling._gaps(len(words), probability).tolist()
    compared = [(a, b) for a, b in zip(result, expected, strict=True) if b is not None]
    assert len(compared) > 300
    assert all(a == min(b, shuffling._MOST_CELLS) for a, b in compared)


def test_hardly_any_gap_takes_more_bits():
    with patch.object(shuffling, "_exact_gap", wraps=shuffling._exact_gap) as exact:
        shuffling._gaps(1_000_000, 5e-4)
    assert exact.call_count <= 3


def test_a_narrower_error_would_decide_wrongly():
    """The enclosure is needed: without it the double nearest to the ratio is on the wrong side of some borders."""
    wrong = 0
    for gap in range(1, 400):
        with mpmath.workprec(200):
            top = int(mpmath.floor(mpmath.ldexp((1 - mpmath.mpf(5e-4)) ** gap, 64)))
        for word in (top - 1, top + 1):
            ratio = shuffling._logs(np.array([float(word >> 12)]))[0] / shuffling._log_of_miss(5e-4)
            wrong += math.floor(ratio) != exact_gap(5e-4, word, 64)
    assert wrong > 50


@given(st.integers(0, 2**52 - 1))
@example(0)
@example(1)
@example(2**52 - 1)
@example(2**51)
@example(2**51 - 1)
@example(int(2**52 * 0.5**0.5))
@example(int(2**52 * 0.5**0.5) + 1)
def test_logarithms_are_within_their_bound(leading):
    with mpmath.workprec(200):
        exact = mpmath.log(mpmath.ldexp(2 * leading + 1, -53))
        error = abs(mpmath.mpf(float(shuffling._logs(np.array([float(leading)]))[0])) - exact)
        assert error <= 4 * ROUNDING * (1 + abs(exact))


def test_the_bound_of_logarithms_is_not_idle():
    leading = np.frombuffer(os.urandom(8 * 3000), np.uint64) >> np.uint64(12)
    with mpmath.workprec(200):
        exact = [mpmath.log(mpmath.ldexp(2 * int(each) + 1, -53)) for each in leading]
        result = shuffling._logs(leading.astype(float)).tolist()
        shares = [abs(mpmath.mpf(a) - b) / (4 * ROUNDING * (1 + abs(b))) for a, b in zip(result, exact, strict=True)]
    assert 0.02 < max(shares) <= 1


def test_nobody_can_repeat_a_draw():
    draws = []
    for _ in range(2):
        np.random.seed(1)
        random.seed(1)
        draws.append([each.tolist() for each in shuffling.participation(1000, 3, 0.5)])
    assert draws[0] != draws[1]


@pytest.mark.parametrize("probability", [0, 0.0, -0.1, 1.0000001, math.nan, math.inf])
def test_no_probability_is_refused(probability):
    with pytest.raises(ValueError, match=f"probability = {probability!r} must be above 0 and at most 1"):
        shuffling.participation(10, 10, probability)


@pytest.mark.parametrize("steps", [0, -1, 2**46 + 1])
def test_no_number_of_steps_is_refused(steps):
    with pytest.raises(ValueError, match=f"steps = {steps} must be from 1 to"):
        shuffling.participation(10, steps, 0.5)
