"""Whoever chooses the releases, and sees each before the next, gets no more than the promise.

The adversary is the best there is among those that compose randomised responses, leaks and a last
Gaussian: found by dynamic programming over its privacy loss, with exact probabilities.
"""

import math
from functools import lru_cache

import pytest

from dbdp.privacy.accounting import CHARGE_UNITS, Budget, EpsilonDeltaDpEvent, Release

STEP = 0.2  # every ε is a multiple, so the loss is a whole number of steps
CHOICES = (1, 2, 5)
LEAKS = (0.0, 0.5)  # of what the budget can leak


def upper_tail(x: float) -> float:
    """P(X > x) of a standard normal X."""
    return math.erfc(x / math.sqrt(2)) / 2


class Adversary:
    """Spends a budget, greedy for the largest δ at the promised ε."""

    def __init__(self, budget: Budget, *, factor: float = 1.0) -> None:
        self.budget = budget
        self.charge = int(budget.charge_limit * factor)
        self.best = lru_cache(maxsize=None)(self._best)
        self.options = [self._option(steps, share) for steps in CHOICES for share in LEAKS]

    def delta(self) -> float:
        """max P(S) - e^ε Q(S) over all its strategies and sets S."""
        return self.best(0, self.charge, self.budget.leak_limit)

    def _option(self, steps: int, share: float) -> tuple[int, float, int, int]:
        epsilon, delta = steps * STEP, share * self.budget.leak_limit / 1e18
        release = Release(EpsilonDeltaDpEvent(epsilon, delta), epsilon, delta)
        return (steps, delta, *self.budget.cost(release))

    def _best(self, loss: int, charge: int, leak: int) -> float:
        """The same after a transcript with Q-probability 1 and P-probability e^loss."""
        found = self._stop(loss, charge)
        for steps, delta, cost, leaked in self.options:
            if cost <= charge and leaked <= leak:
                yes = 1 / (1 + math.exp(-steps * STEP))
                more, less = (self.best(loss + way, charge - cost, leak - leaked) for way in (steps, -steps))
                responses = (1 - yes) * more + yes * less
                found = max(found, delta * math.exp(loss * STEP) + (1 - delta) * responses)
        return found

    def _stop(self, loss: int, charge: int) -> float:
        """End, with a Gaussian for the charge that is left where the budget has such charges."""
        left = self.budget.epsilon - loss * STEP
        if self.budget.order is None or charge == 0:
            return max(math.exp(loss * STEP) - math.exp(self.budget.epsilon), 0.0)
        mean = math.sqrt(2 * charge / CHARGE_UNITS / self.budget.order)
        hit = upper_tail(left / mean - mean / 2) - math.exp(left) * upper_tail(left / mean + mean / 2)
        return math.exp(loss * STEP) * hit


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (1.0, 1e-3), (2.0, 1e-2)])
def test_no_adaptive_adversary_exceeds_a_renyi_budget(epsilon, delta):
    budget = Budget.of(epsilon=epsilon, delta=delta)
    assert delta / 10 <= Adversary(budget).delta() <= delta
    assert Adversary(budget, factor=2.0).delta() > delta  # it would find a filter that lets too much pass


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (1.0, 0.0), (2.0, 1e-4)])
def test_no_adaptive_adversary_exceeds_a_basic_budget(epsilon, delta):
    budget = Budget.of(epsilon=epsilon, delta=delta, mode="basic")
    assert 0.9 * delta <= Adversary(budget).delta() <= delta * (1 + 1e-12) + 1e-15
    assert Adversary(budget, factor=1.2).delta() > delta + 1e-6


def test_forgetting_the_leaks_would_be_found():
    budget = Budget.of(epsilon=1.0, delta=0.05, mode="basic")
    adversary = Adversary(budget)
    adversary.options = [(steps, delta, cost, 0) for steps, delta, cost, _ in adversary.options]
    assert adversary.delta() > 0.05
