"""Counts of values of a private domain: the law of their noise, and the chance that a new value is shown."""

import itertools
import math

import numpy as np
import pytest
from goodness import ALPHA, of_integers
from scipy import stats

from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent
from dbdp.privacy.discovered_values import DiscoveredValues

MOVED = pytest.mark.parametrize("moved", [1, 2, 3, 10])
EPSILONS = pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])


def above(mechanism: DiscoveredValues, least: int) -> float:
    """P(noise ≥ least), by the law P(k) ∝ e^{-|k|/t}."""
    t = float(mechanism.noise.scale)
    return math.exp(-least / t) / (1 + math.exp(-1 / t))


def partitions(total: int, most: int | None = None) -> list[list[int]]:
    """All ways in which so many records have new values: the counts of these."""
    most = total if most is None else most
    if total == 0:
        return [[]]
    return [[part, *rest] for part in range(min(total, most), 0, -1) for rest in partitions(total - part, part)]


def worst(mechanism: DiscoveredValues, threshold: int) -> float:
    """The largest chance, over all neighbours, that a value that only one of them has is shown."""
    ways = (counts for records in range(1, mechanism.moved + 1) for counts in partitions(records))
    return max(sum(above(mechanism, threshold - count) for count in counts) for counts in ways)


@MOVED
@EPSILONS
@pytest.mark.parametrize("delta", [1e-10, 1e-6, 0.01])
def test_a_new_value_is_shown_with_the_chance_delta(moved, epsilon, delta):
    """By brute force over all new values of a unit; a threshold of one less would exceed δ."""
    mechanism = DiscoveredValues(epsilon, delta, moved)
    assert worst(mechanism, mechanism.threshold) <= delta < worst(mechanism, mechanism.threshold - 1)


REACH = 150  # of noise: beyond it lies less than 1e-12


def law(count: int, threshold: int, scale: float) -> np.ndarray:
    """The law of what is shown of a value: at first nothing, then each noisy count from the threshold on."""
    if count == 0:
        return np.eye(1, REACH + 1)[0]
    shown = np.exp(-np.abs(np.arange(threshold, threshold + REACH) - count) / scale) * math.tanh(1 / (2 * scale))
    return np.concatenate([[1 - shown.sum()], shown])


def exceedance(one: tuple[int, int], other: tuple[int, int], threshold: int, scale: float, epsilon: float) -> float:
    """The least δ for which two tables of two values are as alike as (ε, δ)-DP demands, exactly."""
    p, q = (np.multiply.outer(*(law(count, threshold, scale) for count in counts)) for counts in (one, other))
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def neighbouring(moved: int, many: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """All pairs of tables of two values, rare or of many rows, in which at most r rows have changed."""
    tables = list(itertools.product((0, 1, 2, 3, many, many + moved), repeat=2))
    changes = {(one, other): np.subtract(other, one) for one in tables for other in tables}
    return [pair for pair, change in changes.items() if max(change.clip(0).sum(), (-change).clip(0).sum()) <= moved]


@pytest.mark.parametrize("moved", [1, 2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.01), (1.0, 1e-5), (3.0, 0.1)])
def test_neighbours_attain_the_guarantee_and_never_exceed_it(moved, epsilon, delta):
    """Exactly, for explicit tables. With a threshold that is less by 2 + r, or half of the noise, they exceed it."""
    mechanism = DiscoveredValues(epsilon, delta, moved)
    scale, pairs = float(mechanism.noise.scale), neighbouring(moved, mechanism.threshold + 9)

    def largest(threshold: int, noise: float) -> float:
        return max(exceedance(*pair, threshold, noise, epsilon) for pair in pairs)

    attained = largest(mechanism.threshold, scale)
    assert delta * math.exp(-1 / scale) * 0.75 < attained <= delta * (1 + 1e-9)
    assert largest(mechanism.threshold - 2 - moved, scale) > delta
    assert largest(mechanism.threshold, scale / 2) > 3 * delta


def test_a_rare_value_is_shown_as_often_as_its_delta_allows():
    """Neighbours with and without one row of its own value. The interval excludes a threshold that is less by 3."""
    mechanism, runs = DiscoveredValues(1.0, 0.2), 20_000
    rows = {"common": 500, "only here": 1}
    hits = sum("only here" in mechanism.release(rows, frozenset()) for _ in range(runs))
    low, high = stats.beta.ppf([ALPHA / 2, 1 - ALPHA / 2], [hits, hits + 1], [runs - hits + 1, runs - hits])
    assert low <= above(mechanism, mechanism.threshold - 1) <= high
    assert low <= mechanism.delta
    assert not low <= above(mechanism, mechanism.threshold - 4) <= high
    without = (mechanism.release({"common": 500}, frozenset()) for _ in range(1000))
    assert not any("only here" in shown for shown in without)


@pytest.mark.parametrize("moved", [1, 3])
def test_the_noise_of_a_shown_count_is_discrete_laplace(moved):
    """Of scale 2r/ε; a tenth more would be seen."""
    mechanism = DiscoveredValues(2.0, 1e-6, moved)
    rows = {str(place): 10_000 for place in range(20_000)}
    shown = mechanism.release(rows, frozenset(["(null)"]))
    assert len(shown) == len(rows) + 1
    noise = np.array([shown[value] - 10_000 for value in rows])
    for factor, fits in ((1.0, True), (1.1, False)):
        t = factor * 2 * moved / 2.0
        assert (of_integers(noise, lambda k, t=t: -np.abs(k) / t, 200) > ALPHA) == fits


def test_values_that_are_always_shown_need_no_row():
    mechanism = DiscoveredValues(1.0, 1e-6)
    shown = [mechanism.release({"rare": 1, "(null)": 3}, frozenset(["(null)", "(other)"])) for _ in range(50)]
    assert all({"(null)", "(other)"} <= set(each) for each in shown)
    assert sum("rare" in each for each in shown) == 0  # with probability 1 - 5e-5


@MOVED
def test_the_charge_is_that_of_two_halves_and_one_leak(moved):
    release = DiscoveredValues(1.0, 1e-6, moved).guarantee
    assert (release.epsilon, release.delta) == (1.0, 1e-6)
    assert release.event.leak(1.0) == 1e-6
    halves = 2 * EpsilonDeltaDpEvent(0.5, 0.0).divergence(20.0)
    assert halves <= release.event.divergence(20.0) <= halves * (1 + 1e-12)
    assert halves < EpsilonDeltaDpEvent(1.0, 0.0).divergence(20.0)


WRONG = [(1.0, 0.0, "above 0"), (0.0, 1e-6, "epsilon"), (1.0, 1.0, "delta")]


@pytest.mark.parametrize(("epsilon", "delta", "named"), WRONG)
def test_a_guarantee_without_delta_is_refused(epsilon, delta, named):
    with pytest.raises(ValueError, match=named):
        DiscoveredValues(epsilon, delta)
