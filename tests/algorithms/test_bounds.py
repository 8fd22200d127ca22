"""Private bounds: public bins, a threshold that empty bins hardly reach, and bounds that hold most of the numbers."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dbdp.algorithms.scores.column_bounds import BETA, EDGES, FAR, BoundsPlan

BINS = len(EDGES) - 1


def counted(values):
    """Counts of numbers in the bins, by comparison with every edge."""
    counts = np.zeros(BINS, np.int64)
    for value in values:
        place = sum(value >= edge for edge in EDGES) - 1 if not math.isnan(value) else BINS
        if 0 <= place < BINS:
            counts[place] += 1
    return counts


def released(values, epsilon, **more):
    plan = BoundsPlan(epsilon, 0.0, len(values), **more)
    return plan.answer(plan.release(counted(values)))


def test_the_edges_are_rising_powers_of_two():
    """The edges rise from the least finite number to infinity and are powers of two."""
    assert sorted(set(EDGES)) == EDGES
    assert math.isinf(EDGES[-1])
    assert math.isinf(math.nextafter(EDGES[0], -math.inf))
    assert all(math.frexp(abs(edge))[0] == 0.5 for edge in EDGES[1:-1] if edge)
    assert 0.0 in EDGES


@given(value=st.floats(allow_nan=True, allow_infinity=True))
def test_a_number_is_in_one_bin_and_what_is_none_in_none(value):
    assert counted([value]).sum() == math.isfinite(value)


def test_a_record_moves_two_counts_by_one_at_most():
    """Replacing a record moves two counts by one at most and the noise is for that."""
    extremes = [0.0, -0.0, 5e-324, -5e-324, 1.0, -1e308, 1.7e308, math.inf, -math.inf, math.nan]
    changes = [np.abs(counted([one]) - counted([other])).sum() for one in extremes for other in extremes]
    assert max(changes) == BoundsPlan(1.0, 0.0, 10).mechanism.sensitivity == 2
    assert BoundsPlan(1.0, 0.0, 10, moved=3).mechanism.sensitivity == 6


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("beta", [1e-6, BETA, 0.5])
def test_no_empty_bin_passes_but_with_the_reported_probability(delta, beta):
    """By the law of one count; and over many releases of nothing at all, at a chance of a half."""
    plan = BoundsPlan(0.3, delta, 100, beta)
    if not delta:
        q = math.exp(-1 / plan.mechanism.noise_scale)
        assert beta * 0.8 < BINS * q**plan.threshold / (1 + q) <= beta * (1 + 1e-9)
    if beta == 0.5:
        passed = [plan.answer(plan.release(np.zeros(BINS)))["lower"] is not None for _ in range(60)]
        assert 1 < np.sum(passed) < 54
        assert stats.binom.cdf(1, 60, 0.4) + stats.binom.sf(53, 60, 0.5) < 1e-9  # false alarms


@pytest.mark.parametrize(
    ("values", "lower", "upper"),
    [
        (np.linspace(17, 90, 5000), 16.0, 128.0),
        (np.linspace(-3, 5, 5000), -4.0, 8.0),
        (np.zeros(5000), 0.0, 2.0**-32),
        (np.full(5000, -1e-300), -(2.0**-32), 0.0),
        (np.full(5000, 1e250), 2.0**64, FAR),
        (np.full(5000, -1e250), -FAR, -(2.0**64)),
        (np.full(5000, 4.0), 4.0, 8.0),
        (np.full(5000, -4.0), -4.0, -2.0),
    ],
)
def test_the_bounds_are_the_powers_of_two_around_the_numbers(values, lower, upper):
    """A bin has its lower edge and not its upper one, also below 0: -4 is in [-4, -2)."""
    told = released(values, 1.0, beta=1e-12)
    assert (told["lower"], told["upper"]) == (lower, upper)
    assert told["outside"] < 0.2
    assert sum(each["rows"] for each in told["bins"]) == pytest.approx(5000, abs=1000)


def test_what_is_no_number_counts_as_outside():
    told = released([*np.linspace(1, 2, 3000, endpoint=False), *[math.nan] * 1000], 1.0, beta=1e-12)
    assert abs(told["outside"] - 0.25) < 7 * told["outside_noise"]
    assert 0 < told["outside_noise"] < 0.02


def test_few_rows_have_no_bounds_and_say_so():
    told = released([1.0, 2.0, 3.0], 0.01, beta=1e-9)
    assert (told["lower"], told["upper"], told["outside"], told["bins"]) == (None, None, 1.0, [])


@settings(max_examples=20)
@given(counts=st.lists(st.sampled_from([-(2**62), -3, 0, 10**6, 2**62]), min_size=BINS, max_size=BINS))
def test_whatever_the_noise_does_the_answer_is_json(counts):
    told = BoundsPlan(1.0, 0.0, 1000).answer(np.array(counts))
    json.dumps(told, allow_nan=False)
    assert 0 <= told["outside"] <= 1


@pytest.mark.parametrize("beta", [0.0, -1.0, 0.6, math.nan, math.inf, None, "a"])
def test_a_chance_that_is_none_is_refused(beta):
    with pytest.raises(ValueError, match=r"beta = .* must be a number from 1e-12 to 0\.5"):
        BoundsPlan(1.0, 0.0, 10, beta)


def test_the_plan_reports_its_threshold():
    told = BoundsPlan(0.1, 0.0, 1000).explain()
    assert (told["algorithm"], told["cells"], told["noise_scale"], told["beta"]) == ("bounds", BINS, 20.0, BETA)
    assert told["threshold"] == 231
