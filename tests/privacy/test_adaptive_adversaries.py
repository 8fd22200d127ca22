"""An adversary who chooses each release after seeing the earlier ones stays within the guarantee.

The adversary is the best there is among those that compose the mechanisms offered to it: found by dynamic
programming over its privacy loss. Two of them: one of mechanisms with few outcomes, with exact
probabilities; and one that also has Gaussians and mixtures, whose losses are continuous, on a grid.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
from scipy import interpolate, optimize, special
from textbook import gaussian_delta

from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS, Budget
from dbdp.privacy.accounting.events import (
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    Release,
    ShuffledGaussianDpEvent,
)

STEP = 0.2  # every ε is a multiple, so the loss is a whole number of steps
CHOICES = (1, 2, 5)
LEAKS = (0.0, 0.5)  # of what the budget can leak


def upper_tail(x: float) -> float:
    """P(X > x) of a standard normal X."""
    return math.erfc(x / math.sqrt(2)) / 2


def square_of_a_charge(budget: Budget) -> float:
    """μ² of the Gaussian that costs 1: αμ²/2 in mode renyi, μ² in mode gaussian, μ²/2 in mode zcdp."""
    if budget.order is not None:
        return 2 / budget.order
    return 2.0 if budget.mode == "zcdp" else 1.0


class Adversary:
    """Spends a budget, greedy for the largest δ at the promised ε, on randomised responses and leaks."""

    def __init__(self, budget: Budget, *, factor: float = 1.0) -> None:
        self.budget = budget
        self.charge = int(budget.charge_limit * factor)
        self.best = lru_cache(maxsize=None)(self._best)
        self.options = [self._option(steps, share) for steps in CHOICES for share in LEAKS]

    def delta(self) -> float:
        """max P(S) - e^ε Q(S) over all its strategies and sets S."""
        return self.best(0, self.charge, self.budget.leak_limit)

    def _option(self, steps: int, share: float) -> tuple[int, float, int, int]:
        epsilon, delta = steps * STEP, share * self.budget.leak_limit / LEAK_UNITS
        release = Release(EpsilonDeltaDpEvent(epsilon, delta), epsilon, delta)
        return (steps, delta, *self.budget.cost(release))

    def _best(self, loss: int, charge: int, leak: int) -> float:
        """The same after a transcript with Q-probability 1 and P-probability e^loss."""
        result = self._stop(loss, charge)
        for steps, delta, cost, leaked in self.options:
            if cost <= charge and leaked <= leak:
                yes = 1 / (1 + math.exp(-steps * STEP))
                more, less = (self.best(loss + way, charge - cost, leak - leaked) for way in (steps, -steps))
                responses = (1 - yes) * more + yes * less
                result = max(result, delta * math.exp(loss * STEP) + (1 - delta) * responses)
        return result

    def _stop(self, loss: int, charge: int) -> float:
        """End, with a Gaussian for the charge that is left where the budget has such charges."""
        left = self.budget.epsilon - loss * STEP
        if self.budget.mode == "basic" or charge == 0:
            return max(math.exp(loss * STEP) - math.exp(self.budget.epsilon), 0.0)
        mean = math.sqrt(charge / CHARGE_UNITS * square_of_a_charge(self.budget))
        hit = upper_tail(left / mean - mean / 2) - math.exp(left) * upper_tail(left / mean + mean / 2)
        return math.exp(loss * STEP) * hit


@pytest.mark.parametrize("mode", ["renyi", "gaussian", "zcdp"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (1.0, 1e-3), (2.0, 1e-2)])
def test_no_adversary_with_responses_and_leaks_exceeds_a_budget(epsilon, delta, mode):
    budget = Budget.of(epsilon=epsilon, delta=delta, mode=mode)
    assert delta / 10 <= Adversary(budget).delta() <= delta
    assert Adversary(budget, factor=2.0).delta() > delta  # it would find a filter that lets too much pass


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (1.0, 0.0), (2.0, 1e-4)])
def test_no_adaptive_adversary_exceeds_a_basic_budget(epsilon, delta):
    budget = Budget.of(epsilon=epsilon, delta=delta, mode="basic")
    assert 0.9 * delta <= Adversary(budget).delta() <= delta * (1 + 1e-12) + 1e-15
    assert Adversary(budget, factor=1.2).delta() > delta + 1e-6


@pytest.mark.parametrize("mode", ["basic", "renyi", "gaussian", "zcdp"])
@pytest.mark.parametrize("part", [0.8, 0.5])
def test_no_adversary_within_an_allowance_exceeds_its_epsilon(part, mode):
    """By releases of its own alone, at its own order; with twice the limit it would."""
    budget = Budget.of(epsilon=2.0, delta=0.05, mode=mode)
    allowance = budget.allowance(part * budget.epsilon)
    assert allowance.epsilon == part * budget.epsilon
    assert allowance.delta / 10 <= Adversary(allowance).delta() <= allowance.delta * (1 + 1e-12)
    assert Adversary(allowance, factor=2.0).delta() > allowance.delta
    if mode == "renyi":  # one that counts at the order of earlier charges, too
        earlier = budget.allowance(1.6, budget.order)
        assert earlier.order == budget.order != allowance.order
        assert earlier.delta / 10 <= Adversary(earlier).delta() <= earlier.delta
        assert Adversary(earlier, factor=2.0).delta() > earlier.delta


@pytest.mark.parametrize("mode", ["renyi", "gaussian"])
def test_half_of_the_limits_would_not_be_half_of_epsilon(mode):
    """What an allowance was before: a part of a divergence is not that part of an ε."""
    budget = Budget.of(epsilon=2.0, delta=0.05, mode=mode)
    halved = replace(budget, epsilon=1.0, charge_limit=budget.charge_limit // 2, leak_limit=budget.leak_limit // 2)
    assert Adversary(halved).delta() > budget.delta >= Adversary(budget.allowance(1.0)).delta()


def test_forgetting_the_leaks_would_be_noticed():
    budget = Budget.of(epsilon=1.0, delta=0.05, mode="basic")
    adversary = Adversary(budget)
    adversary.options = [(steps, delta, cost, 0) for steps, delta, cost, _ in adversary.options]
    assert adversary.delta() > 0.05


# --- mechanisms with continuous outcomes -------------------------------------------------------------------

UNITS = 20  # charges are rounded up to so many parts of the budget, so that few states of the ledger occur
LOSSES = np.linspace(-12, 12, 801)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True, eq=False)
class Mechanism:
    """Loss and Q-probability of each outcome, and how many units of the budget a release costs."""

    losses: np.ndarray
    chances: np.ndarray
    cost: int


class Offers:
    """Mechanisms that cost a share of a budget, as its ledger charges them."""

    def __init__(self, budget):
        self.budget = budget

    def cost(self, event, epsilon=1e6):
        return self.budget.cost(Release(event, epsilon, 0.0))[0] / self.budget.charge_limit

    def composed_of(self, share, event, outcomes):
        """The member of a family, event(x) and outcomes(x), that is charged `share`."""
        size = optimize.brentq(lambda log: math.log(self.cost(*event(math.exp(log))) / share), -9, 3, xtol=1e-12)
        losses, chances = outcomes(math.exp(size))
        return Mechanism(np.asarray(losses), np.asarray(chances), round(share * UNITS))

    def gaussian(self, share):
        """N(μ, 1) against N(0, 1): under Q the loss is N(-μ²/2, μ²)."""
        return self.composed_of(
            share, lambda mean: (GaussianDpEvent(1 / mean),), lambda mean: (mean * NODES - mean**2 / 2, WEIGHTS)
        )

    def shuffled(self, share, shares, ratio):
        """The dominating pair of a mixture: one of two positions is seen, then a Gaussian."""

        def outcomes(mean):
            means = (mean, ratio * mean)
            return np.concatenate([m * NODES - m**2 / 2 for m in means]), np.outer(shares, WEIGHTS).ravel()

        return self.composed_of(
            share, lambda mean: (ShuffledGaussianDpEvent(shares, (1 / mean, 1 / (ratio * mean))),), outcomes
        )

    def response(self, share, event=lambda epsilon: EpsilonDeltaDpEvent(epsilon, 0.0)):
        """Randomised response, told to the ledger as that event."""
        return self.composed_of(
            share,
            lambda epsilon: (event(epsilon), epsilon),
            lambda epsilon: ([epsilon, -epsilon], special.expit([-epsilon, epsilon])),
        )

    def selection(self, share, low):
        """The most telling mechanism whose loss is in [-low·ε, (1 - low)ε]."""

        def outcomes(epsilon):
            rare = -math.expm1(-low * epsilon) / (math.exp((1 - low) * epsilon) - math.exp(-low * epsilon))
            return [(1 - low) * epsilon, -low * epsilon], [rare, 1 - rare]

        return self.composed_of(share, lambda epsilon: (ExponentialMechanismDpEvent(epsilon), epsilon), outcomes)


class Continuous:
    """The best adversary among those that use these mechanisms, each as often as the budget allows."""

    def __init__(self, budget, mechanisms):
        self.budget, self.mechanisms = budget, mechanisms
        self.best = lru_cache(maxsize=None)(self._best)

    def delta(self, units=UNITS):
        """max P(S) - e^ε Q(S); leaks are the other adversary's."""
        return float(self.best(units)(np.zeros(1))[0])

    def _best(self, units):
        """The same as a function of the loss so far, for Q-probability 1 of the transcript.

        What is continuous leaves a unit, for a last Gaussian: its few nodes would miss the kink of an end.
        """
        affordable = [each for each in self.mechanisms if each.cost < units + (len(each.losses) == 2)]
        if not affordable:
            return lambda losses: self._stop(losses, units)
        result = self._stop(LOSSES, units)
        for each in affordable:
            rest = self.best(units - each.cost)
            result = np.maximum(result, rest(LOSSES[:, None] + each.losses) @ each.chances)
        spline = interpolate.CubicSpline(LOSSES, result * special.expit(-LOSSES))
        return lambda losses: spline(losses) / special.expit(-losses)

    def _stop(self, losses, units):
        """End: at once, or with a Gaussian for the charge that is left."""
        left = self.budget.epsilon - losses
        if not units:
            return np.maximum(np.exp(losses) - math.exp(self.budget.epsilon), 0.0)
        charge = units / UNITS * self.budget.charge_limit / CHARGE_UNITS
        mean = math.sqrt(charge * square_of_a_charge(self.budget))
        hit = special.ndtr(mean / 2 - left / mean) - np.exp(left + special.log_ndtr(-mean / 2 - left / mean))
        return np.exp(losses) * np.maximum(hit, 0)


def offered(budget):
    """Gaussians, mixtures, responses and selections that cost from a twentieth of the budget on."""
    offers = Offers(budget)
    return [
        *(offers.gaussian(share) for share in (0.05, 0.3)),
        offers.shuffled(0.1, (0.9, 0.1), 3.0),
        offers.shuffled(0.3, (0.99, 0.01), 10.0),
        *(offers.response(share) for share in (0.05, 0.25, 0.5)),
        *(offers.selection(0.1, low) for low in (0.1, 0.5, 0.9)),
    ]


EVERY_BUDGET = pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (1.0, 1e-3), (3.0, 1e-2)])


@EVERY_BUDGET
@pytest.mark.parametrize("mode", ["renyi", "zcdp"])
def test_no_adversary_exceeds_a_renyi_budget(epsilon, delta, mode):
    """No adversary of gaussians mixtures responses and selections exceeds a budget."""
    budget = Budget.of(epsilon=epsilon, delta=delta, mode=mode)
    adversary = Continuous(budget, offered(budget))
    assert delta / 10 <= adversary.delta() <= 0.9 * delta * (1 + 1e-6)
    assert adversary.delta(2 * UNITS) > delta  # it would find a filter that lets too much pass


@EVERY_BUDGET
def test_no_adversary_exceeds_a_gaussian_budget(epsilon, delta):
    """Gaussians attain it, in whatever way they are chosen, and nothing does better."""
    budget = Budget.of(epsilon=epsilon, delta=delta, mode="gaussian")
    adversaries = [Continuous(budget, mechanisms) for mechanisms in (offered(budget)[:2], offered(budget))]
    assert [each.delta() for each in adversaries] == pytest.approx([0.9 * delta] * 2, rel=1e-3)
    assert adversaries[1].delta(UNITS + 2) > delta


def without_stops(budget, mechanism):
    """δ of a budget that is spent on one mechanism alone."""
    adversary = Continuous(budget, [mechanism])
    adversary._stop = lambda losses, _: np.maximum(np.exp(losses) - math.exp(budget.epsilon), 0.0)
    return adversary.delta()


CONTROLS = [
    # what, in which ledger, a charge so many times too small
    ("randomised responses", "renyi", 6.0),
    ("randomised responses", "gaussian", 2.0),
    ("selections", "renyi", 6.0),
    ("mixtures", "renyi", 20.0),
    ("gaussians", "renyi", 3.0),
    ("gaussians", "gaussian", 1.2),
    ("gaussians", "zcdp", 3.0),
]
SMALL = {
    "randomised responses": lambda offers: offers.response(0.05),
    "selections": lambda offers: offers.selection(0.05, 0.5),
    "mixtures": lambda offers: offers.shuffled(0.05, (0.9, 0.1), 3.0),
    "gaussians": lambda offers: offers.gaussian(0.05),
}


@pytest.mark.parametrize(("name", "mode", "factor"), CONTROLS)
def test_a_charge_several_times_too_small_would_be_noticed(name, mode, factor):
    budget = Budget.of(epsilon=1.0, delta=0.05, mode=mode)
    assert without_stops(budget, SMALL[name](Offers(budget))) <= 0.045 * (1 + 1e-4)
    assert without_stops(budget, SMALL[name](_Cheap(budget, factor))) > 0.05


class _Cheap(Offers):
    """Charges a fraction of what a release costs."""

    def __init__(self, budget, factor):
        super().__init__(budget)
        self.factor = factor

    def cost(self, event, epsilon=1e6):
        return super().cost(event, epsilon) / self.factor


def test_permute_and_flip_charged_as_a_softmax_would_be_noticed():
    """Its loss spans 2ε, as a randomised response's does."""
    budget = Budget.of(epsilon=1.0, delta=0.05)
    offers = Offers(budget)
    honest, posing = offers.response(0.05), offers.response(0.05, ExponentialMechanismDpEvent)
    assert without_stops(budget, honest) <= 0.045
    assert without_stops(budget, posing) > 0.05


def test_many_small_gaussians_are_one_on_the_grid():
    """Nineteen, one after the other: the last unit is left."""
    budget = Budget.of(epsilon=1.0, delta=1e-3, mode="gaussian")
    mean = math.sqrt(0.95 * budget.charge_limit / CHARGE_UNITS)
    assert without_stops(budget, Offers(budget).gaussian(0.05)) == pytest.approx(gaussian_delta(1.0, mean), rel=1e-3)


# --- a filter of privacy loss distributions -----------------------------------------------------------------


def test_a_filter_that_convolves_losses_is_exceeded_by_a_choice():
    """Each of two second releases would bring δ(1) to 1e-6, neither more: chosen by the first one's outcome they do."""
    first, promised = 0.5, 1e-6  # randomised response: the loss is ±0.5
    up = special.expit(first)

    def convolved(second):
        """δ(1) of both releases, for the δ(ε) of the second."""
        return up * second(1 - first) + (1 - up) * second(1 + first)

    mean = optimize.brentq(lambda m: convolved(lambda left: gaussian_delta(left, m)) - promised, 0.01, 2)
    seconds = [lambda left: gaussian_delta(left, mean), lambda _left: promised]  # a Gaussian, and a leak
    assert [convolved(second) for second in seconds] == pytest.approx([promised] * 2, rel=1e-6)
    assert convolved(lambda left: max(second(left) for second in seconds)) > 1.35 * promised


def test_one_number_for_each_release_is_not_exceeded():
    """The control: in mode gaussian the two second releases of the same charge and leak compose to δ at most."""
    budget = Budget.of(epsilon=1.0, delta=1e-6, mode="gaussian")
    square = (budget.charge_limit - budget.cost(Release(EpsilonDeltaDpEvent(0.1, 0.0), 0.1, 0.0))[0]) / CHARGE_UNITS
    mean, up = math.sqrt(square), special.expit(0.1)

    def second(left):
        return max(gaussian_delta(left, mean), budget.leak_limit / LEAK_UNITS)

    assert up * second(0.9) + (1 - up) * second(1.1) <= 1e-6
