"""Orders are uniform, secret and new each time."""

import hashlib
import os
import random
from collections import Counter
from itertools import combinations, permutations
from unittest.mock import patch

import numpy as np
import pytest
from goodness import ALPHA, of_cells, p_value
from pairs import others_slow

from dbdp.privacy import shuffling
from dbdp.privacy.shuffling import Section

ORDERS = list(permutations(range(4)))


def even(counts):
    """The p-value of equal frequencies."""
    return p_value(counts, np.ones(len(counts)))


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
    assert even(counts_of(shuffling.permutation(4) for _ in range(24_000))) > ALPHA
    assert even(counts_of(swapped_at_random(4) for _ in range(24_000))) < ALPHA  # a bias would be seen
    assert even(counts_of(ORDERS * 1000)) < ALPHA  # and orders that take turns


def test_a_record_may_go_to_every_place():
    places = np.array([shuffling.permutation(16)[0] for _ in range(16_000)])
    assert even(np.bincount(places, minlength=16)) > ALPHA


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
    "draw", [lambda: shuffling.permutation(1000), lambda: shuffling.distinct(1000, 2**40)], ids=["order", "places"]
)
def test_no_seed_repeats_an_order(draw):
    assert seeded(draw) != seeded(draw)
    assert seeded(lambda: np.random.permutation(1000)) == seeded(lambda: np.random.permutation(1000))


def test_where_two_keys_are_equal_all_are_drawn_again():
    draws = [np.array(keys, np.uint64).tobytes() for keys in ([5, 1, 5], [0, 0, 9], [7, 9, 8])]
    with patch.object(shuffling.os, "urandom", side_effect=draws) as urandom:
        assert shuffling.permutation(3).tolist() == [0, 2, 1]
    assert urandom.call_count == 3


@pytest.mark.parametrize("how", ["as it is", "never the whole permutation"])
@pytest.mark.parametrize(("count", "ranges"), others_slow([(4, 2), (5, 2), (4, 4), (5, 3)], (4, 2)))
def test_ranges_of_places_are_those_of_a_uniform_permutation(count, ranges, how):
    """Every sequence of ranges, exhaustively: as often as a permutation's places have it; taken in two parts."""
    sizes = [count // ranges + (number < count % ranges) for number in range(ranges)]
    within = np.repeat(np.arange(ranges), sizes)
    expected = Counter(tuple(within[list(order)]) for order in permutations(range(count)))
    result = Counter()
    with patch.object(shuffling, "permutation", first_numbers if how != "as it is" else shuffling.permutation):
        for _ in range(10_000):
            places = shuffling.Places(count, ranges)
            result[tuple(np.concatenate([places.take(count - 2), places.take(2)]))] += 1
            assert not places.left.any()
    assert set(result) <= set(expected)
    cells = list(expected)
    weights = np.array([expected[cell] for cell in cells])
    assert of_cells(np.array([result[cell] for cell in cells]), weights) > ALPHA
    uneven = np.random.default_rng().choice(len(cells), 10_000, p=np.linspace(1, 2, len(cells)) / (1.5 * len(cells)))
    assert of_cells(np.bincount(uneven, minlength=len(cells)), weights) < ALPHA


def first_numbers(below):
    """A uniform permutation by rejection alone."""
    result = []
    while len(result) < below:
        result += [each for each in shuffling._below(below, 1).tolist() if each not in result]
    return np.array(result)


def test_distinct_numbers_are_distinct_and_as_many_as_requested():
    for count, below in ((0, 5), (3, 1000), (999, 1000), (1000, 1000), (400, 10**12), (1, 1)):
        result = shuffling.distinct(count, below)
        assert len(set(result.tolist())) == len(result) == count
        assert all(0 <= each < below for each in result.tolist())
    with pytest.raises(ValueError, match="count = 6 must be at most 5"):
        shuffling.distinct(6, 5)


def keyed(count, key=None):
    return shuffling.KeyedOrder(os.urandom(32) if key is None else key, count)


def whole(order):
    return order.order(order.words(0, order.count))


class FewWords(shuffling.KeyedOrder):
    """Words of two bits: of four slots some are nearly always equal."""

    def words(self, first, last):
        return super().words(first, last) & np.uint64(3)


def test_every_order_of_a_key_is_equally_likely():
    assert even(counts_of(whole(keyed(4)) for _ in range(24_000))) > ALPHA


def test_equal_words_make_no_order_likelier():
    def broken(order):
        return np.argsort(order.words(0, 4), kind="stable")

    with patch.object(shuffling, "KeyedOrder", FewWords):
        assert even(counts_of(whole(keyed(4)) for _ in range(12_000))) > ALPHA
        assert even(counts_of(broken(keyed(4)) for _ in range(4000))) < ALPHA  # slots in their order would be seen


def test_a_key_decides_the_order_whatever_the_seeds():
    key = os.urandom(32)
    assert seeded(lambda: whole(keyed(1000, key))) == whole(keyed(1000, key)).tolist()
    assert seeded(lambda: whole(keyed(1000))) != seeded(lambda: whole(keyed(1000)))
    other = bytes([key[0] ^ 1]) + key[1:]
    assert whole(keyed(1000, other)).tolist() != whole(keyed(1000, key)).tolist()


def test_a_known_key_has_the_words_of_the_standards_function():
    words = keyed(5, b"k" * 32).words(0, 5)
    stream = hashlib.shake_256(b"k" * 32 + bytes(8)).digest(40)
    assert words.tobytes() == stream
    assert keyed(2000, b"k" * 32).words(1024, 1025).tobytes() == hashlib.shake_256(b"k" * 32 + b"\1" + bytes(7)).digest(
        8
    )


@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 5000), (1023, 1025), (1024, 2048), (4999, 5000), (37, 4100)])
def test_words_of_a_part_are_a_part_of_the_words(first, last):
    order = keyed(5000)
    assert order.words(first, last).tolist() == order.words(0, 5000)[first:last].tolist()


@pytest.mark.parametrize("count", [1, 2, 1000, 200_000])
def test_a_bins_words_are_at_its_places(count):
    order = keyed(count)
    starts, words = order.starts(), order.words(0, count)
    assert (starts[0], starts[-1]) == (0, count)
    ranked = order.bins(words[whole(order)])
    assert (np.diff(ranked) >= 0).all()
    assert (starts[ranked] <= np.arange(count)).all()
    assert (np.arange(count) < starts[ranked + 1]).all()


@pytest.mark.parametrize("words_of_a_bin", [1, 8, 40, 64])
def test_a_section_has_the_requested_places(words_of_a_bin):
    """Also where they begin and end in the middle of a bin, and where there is one bin."""
    with patch.object(shuffling, "_BIN_WORDS", words_of_a_bin):
        order = keyed(60)
        words, expected = order.words(0, 60), whole(order)
        for first, last in combinations(range(61), 2):
            section = Section.of(order, first, last)
            chosen = np.flatnonzero(section.bins(words) >= 0)
            assert len(chosen) == section.rows
            result = chosen[section.places(words[chosen], int(section.starts[0]))]
            assert result.tolist() == expected[first:last].tolist()


# --- words without the rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5, 130, 5000, 40_000])
def test_words_of_single_slots_are_those_of_the_order(count):
    order = shuffling.KeyedOrder(os.urandom(32), count)
    words, slots = order.words(0, count), np.random.default_rng(0).integers(0, count, 50)
    assert np.array_equal(order.words_of(slots), words[slots])
    places = np.unique(np.random.default_rng(1).integers(0, count, 9))
    places = places[places > 0]
    assert np.array_equal(order.words_at(places), np.sort(words)[places])


def test_equal_words_at_a_border_are_refused():
    with patch.object(
        shuffling.KeyedOrder, "words", lambda _, first, last: np.repeat([5, 9], 4)[first:last].astype("u8")
    ):
        order = shuffling.KeyedOrder(b"", 8)
        assert order.words_at([4]).tolist() == [9]
        assert order.words_at([4, 5]) is None
