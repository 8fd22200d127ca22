"""What each access of DP-AGD to the rows costs: a measurement of the gradient, or a selection of a step."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

from dbdp.algorithms import noisy_sums
from dbdp.algorithms.families.noisy_search.agd_settings import EVEN, EXPONENTIAL, AgdSettings
from dbdp.algorithms.plan import Request
from dbdp.privacy.accounting.composition import rho_of
from dbdp.privacy.accounting.events import (
    MIN_EPSILON,
    EpsilonDeltaDpEvent,
    Event,
    ExponentialMechanismDpEvent,
    RenyiDpEvent,
    ZCDpEvent,
)
from dbdp.privacy.accounting.renyi import best_order, conversion
from dbdp.privacy.accounting.subsampling import amplified, poisson_gaussian_divergence
from dbdp.privacy.mechanisms import Gaussian

_ORDERS = tuple(1.25**step for step in range(-20, 11))  # of mini-batches: α - 1 relative to the best for Gaussians
_ROOM = 1 - 1e-9  # reduces δ, to cover the error of κ (§14.5)


class Prices(Protocol):
    """The costs of accesses, in one kind of charge; a measurement's noise is specified by its ρ over all rows."""

    @property
    def limit(self) -> float:
        """The largest sum of charges."""

    @property
    def gradient_rho(self) -> float:
        """The ρ of the first measurement."""

    @property
    def selection_epsilon(self) -> float:
        """The ε of every selection."""

    @property
    def selection_charge(self) -> float:
        """The charge of every selection."""

    @property
    def probability(self) -> float:
        """Probability of a row to be in the mini-batch of an access."""

    def gradient_charge(self, rho: float) -> float:
        """Return the charge of a measurement."""

    def noise(self, clip: float, summed: noisy_sums.Summed, parameters: int, rho: float, evaluated: float) -> Gaussian:
        """Return the noise of a measurement; a computed gradient errs by at most `evaluated`."""

    @property
    def event(self) -> Event:
        """The event of the run."""

    def details(self) -> dict[str, Any]:
        """Return the sampling and the limit, for `explain`."""


@dataclass(frozen=True)
class AllRows:
    """Prices where every access reads all rows and is charged ρ-zCDP: the run is `limit`-zCDP (§8(3), §13)."""

    limit: float
    gradient_rho: float
    selection_charge: float
    selection: str
    probability: float = 1.0

    @classmethod
    def of(cls, request: Request, own: AgdSettings) -> "AllRows":
        """Return the prices; a selection costs what Laplace noise of ε/(2·splits) does, ε²/2-zCDP (Lemma 3.7).

        A classical Gaussian of that ε has σ = Δ√(2 ln(1.25/δ))/ε, and so ρ = ε²/(4 ln(1.25/δ)), by Lemma 3.6: the
        published share. The classical formula sets a scale only, and the proof does not use it. Both are limited to
        their part of ρ, which they would exceed for a large ε.
        """
        limit, each = rho_of(request.epsilon, request.delta), request.epsilon / (2 * own.splits)
        selection = min(each**2 / 2, limit / (2 * own.splits) * _ROOM)
        share = 1.0 if own.shares == EVEN else 0.5 / math.log(1.25 / request.delta)
        prices = cls(limit, selection * min(1.0, share), selection, own.selection)
        if prices.selection_epsilon < MIN_EPSILON:
            raise ValueError(
                f"epsilon = {request.epsilon} leaves a selection an epsilon of {prices.selection_epsilon:g}, below "
                f"{MIN_EPSILON:g}; choose a larger epsilon, or fewer splits than {own.splits}"
            )
        return prices

    @property
    def selection_epsilon(self) -> float:
        """ε of a selection: the exponential mechanism is ε²/8-zCDP, any other ε²/2-zCDP (§8(5), §13)."""
        return math.sqrt((8 if self.selection == EXPONENTIAL else 2) * self.selection_charge) * _ROOM

    def gradient_charge(self, rho: float) -> float:
        """See `Prices`."""
        return rho

    def noise(self, clip: float, summed: noisy_sums.Summed, parameters: int, rho: float, evaluated: float) -> Gaussian:
        """See `Prices`."""
        sensitivity = noisy_sums.replaced_sensitivity(clip, summed, evaluated=evaluated)
        return noisy_sums.gaussian_sum(sensitivity, parameters, multiplier=noisy_sums.multiplier_of_rho(rho))

    @property
    def event(self) -> Event:
        """See `Prices`."""
        return ZCDpEvent(self.limit)

    def details(self) -> dict[str, Any]:
        """See `Prices`."""
        return {"sampling": "all rows", "rho": self.limit}


@dataclass(frozen=True)
class MiniBatches:
    """Prices where every access reads a new Poisson mini-batch and is charged its Rényi divergence at one order.

    §8(3), §9.5, §9.7: the order is fixed before the first row is read, two accesses never share a batch,
    and the batch's size is not used: sums are compared with the public q·n. `limit` = ε - κ(α), so that
    the run is (ε, δ)-DP (§13).

    Proof of a selection's charge. With the record in the batch the log of a candidate's odds moves within an
    interval of length ε/2 that holds 0 (`compared_sensitivity`), so against a batch without it, mixed with
    probability q, the log-ratio lies within ±a, a = ln(1 + q(e^{ε/2} - 1)), and within an interval of length a. Two
    such steps lead from one record to another: a range of 2a for the exponential mechanism, pure 2a for both.
    """

    limit: float
    gradient_rho: float
    selection_epsilon: float
    selection: str
    probability: float
    order: float

    @classmethod
    def of(cls, request: Request, own: AgdSettings, probability: float, least_order: float) -> "MiniBatches":
        """Return prices that are the same shares of the limit as those over all rows, at the order with least noise.

        It is not below `least_order`, the ledger's, so that the run is charged its limit, without a leak (§13).
        """
        delta, choices, full = request.delta * _ROOM, [], AllRows.of(request, own)
        excess = best_order(request.epsilon, delta) - 1
        for order in sorted({max(1 + excess * ratio, least_order) for ratio in _ORDERS}):
            limit = (request.epsilon - conversion(order, delta)) * _ROOM
            if limit > 0:
                unit = limit / full.limit
                epsilon = _selection_epsilon(own.selection, full.selection_charge * unit, probability, order)
                rho = _gradient_rho(full.gradient_rho * unit, probability, order)
                choices.append(cls(limit, rho, epsilon, own.selection, probability, order))
        return max(choices, key=lambda prices: prices.gradient_rho * prices.selection_epsilon**2)

    @property
    def selection_charge(self) -> float:
        """The charge of a selection; its proof is that of the class."""
        loss = 2 * amplified(self.selection_epsilon / 2, self.probability)
        exponential = self.selection == EXPONENTIAL
        event = ExponentialMechanismDpEvent(loss) if exponential else EpsilonDeltaDpEvent(loss, 0.0)
        return event.divergence(self.order) / _ROOM

    def gradient_charge(self, rho: float) -> float:
        """See `Prices`."""
        return poisson_gaussian_divergence(self.probability, 2 * noisy_sums.multiplier_of_rho(rho), self.order)

    def noise(self, clip: float, summed: noisy_sums.Summed, parameters: int, rho: float, evaluated: float) -> Gaussian:
        """See `Prices`: σ is that over all rows, where the sensitivity is 2C in place of C."""
        sensitivity = noisy_sums.sampled_sensitivity(clip, summed, evaluated=evaluated)
        return noisy_sums.gaussian_sum(sensitivity, parameters, multiplier=2 * noisy_sums.multiplier_of_rho(rho))

    @property
    def event(self) -> Event:
        """See `Prices`."""
        return RenyiDpEvent(self.order, self.limit)

    def details(self) -> dict[str, Any]:
        """See `Prices`."""
        return {"sampling": "poisson", "renyi_order": self.order, "divergence": self.limit}


def most_selections(prices: Prices, own: AgdSettings) -> int:
    """Return the largest number of selections: each follows one measurement, of γρ at least or a first one."""
    least = prices.gradient_charge(min(1.0, own.growth) * prices.gradient_rho)
    return math.floor(prices.limit / (least + prices.selection_charge) * (1 + 1e-9))


def _selection_epsilon(selection: str, charge: float, probability: float, order: float) -> float:
    """Return ε of a selection on mini-batches with at most that charge: `selection_charge` solved for ε."""
    loss = math.sqrt((8 if selection == EXPONENTIAL else 2) * charge / order)
    return 2 * math.log1p(math.expm1(loss / 2) / probability) * _ROOM


def _gradient_rho(charge: float, probability: float, order: float) -> float:
    """Return approximately the largest ρ of a measurement on mini-batches with at most that charge, by bisection.

    It is at least charge/α, since mini-batches never increase the charge.
    """

    def afforded(rho: float) -> bool:
        multiplier = 2 * noisy_sums.multiplier_of_rho(rho)
        return poisson_gaussian_divergence(probability, multiplier, order) <= charge

    low = charge / order * _ROOM
    high = low
    while afforded(high):
        low, high = high, high * 4
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if afforded(middle) else (low, middle)
    return low
