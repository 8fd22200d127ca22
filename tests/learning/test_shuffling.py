"""Orders are uniform, secret and new each time."""

import random
from collections import Counter
from itertools import permutations
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats

from dbdp import shuffling

ALPHA = 1e-9  # false alarms per test; no seed
ORDERS = list(permutations(range(4)))


def p_value(counts):
    """Of equal frequencies, two-sided: neither too uneven nor too even."""
    statistic, upper = stats.chisquare(counts)
    return 2 * min(upper, stats.chi2.cdf(statistic, len(counts) - 1))


def counts_of(orders):
    counted = Counter(tuple(order) for order in orders)
    return [counted[order] for order in ORDERS]


def swapped_at_random(count):
    """A well-known wrong shuffle: every place swapped with any place."""
    order = list(range(count))
    for place in range(count):
        other = random.SystemRandom().randrange(count)
        order[place], order[other] = order[other], order[place]
    return order


def test_every_order_is_equally_likely():
    assert p_value(counts_of(shuffling.permutation(4) for _ in range(24_000))) > ALPHA
    assert p_value(counts_of(swapped_at_random(4) for _ in range(24_000))) < ALPHA  # a bias would be seen
    assert p_value(counts_of(ORDERS * 1000)) < ALPHA  # and orders that take turns


def test_a_record_may_go_to_every_place():
    places = np.array([shuffling.permutation(16)[0] for _ in range(16_000)])
    assert p_value(np.bincount(places, minlength=16)) > ALPHA


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_permutation_has_every_place_once(count):
    assert sorted(shuffling.permutation(count)) == list(range(count))


def test_every_permutation_is_new():
    assert shuffling.permutation(1000).tolist() != shuffling.permutation(1000).tolist()


def seeded(draw):
    np.random.seed(1)
    random.seed(1)
    return draw().tolist()


@pytest.mark.parametrize(
    "draw",
    [lambda: shuffling.permutation(1000), lambda: shuffling.buckets(1000, 2**20)],
    ids=["order", "buckets"],
)
def test_no_seed_repeats_an_order(draw):
    assert seeded(draw) != seeded(draw)
    assert seeded(lambda: np.random.permutation(1000)) == seeded(lambda: np.random.permutation(1000))


def test_where_two_keys_are_equal_all_are_drawn_again():
    draws = [np.array(keys, np.uint64).tobytes() for keys in ([5, 1, 5], [0, 0, 9], [7, 9, 8])]
    with patch.object(shuffling.os, "urandom", side_effect=draws) as urandom:
        assert shuffling.permutation(3).tolist() == [0, 2, 1]
    assert urandom.call_count == 3


@pytest.mark.parametrize("number", [1, 2, 8, 64])
def test_buckets_are_uniform(number):
    dealt = np.bincount(shuffling.buckets(100_000, number), minlength=number)
    assert len(dealt) == number
    assert number == 1 or p_value(dealt) > ALPHA


def test_neighbouring_rows_are_dealt_independently():
    dealt = shuffling.buckets(200_000, 8).astype(int)
    assert p_value(np.bincount(dealt[::2] * 8 + dealt[1::2], minlength=64)) > ALPHA


def test_uneven_buckets_would_be_seen():
    uneven = np.random.default_rng().choice(8, 100_000, p=np.array([9, 7, 8, 8, 8, 8, 8, 8]) / 64)
    assert p_value(np.bincount(uneven, minlength=8)) < ALPHA


@pytest.mark.parametrize("number", [-2, 0, 3, 6, 1000, 2**32 + 1, 2**33])
def test_buckets_that_random_bits_do_not_divide_evenly_are_refused(number):
    with pytest.raises(ValueError, match=f"number = {number} must be a power of two"):
        shuffling.buckets(10, number)


def test_as_many_buckets_as_allowed_are_dealt_to():
    assert shuffling.buckets(1000, 2**32).max() > 2**28
