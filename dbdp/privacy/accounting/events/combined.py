"""Events made of others: composed, repeated, on disjoint records, padded, or known at one order only (§13)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dbdp.privacy.accounting.events.bounds import exceedance
from dbdp.privacy.accounting.events.event import Event, between, checked, whole, within


def _part() -> Any:
    return checked(lambda value: isinstance(value, Event), "`composed` must be an event")


def _parts() -> Any:
    return checked(
        lambda value: value and all(isinstance(part, Event) for part in value), "`{}` must be a list of events"
    )


@dataclass(frozen=True)
class RepeatAndSelectDpEvent(Event):
    """The best of a random, secret number of runs (Papernot & Steinke 2022), shape 1 (geometric) or ∞ (Poisson).

    `total_variation` bounds how far the law of the number is from that law (it is cut off at a cap).
    """

    repeated: Event = checked(
        lambda value: isinstance(value, Event) and value.is_run(), "`{}` must be an event that is not itself repeated"
    )
    mean: float = between(1, 1e6)
    shape: float = checked(lambda value: value in (1, math.inf), "{} must be 1 or infinite")
    total_variation: float = between(0, 1)

    def divergence(self, order: float) -> float:
        # a Rényi divergence rises in α, so the bound for any larger order holds too; checked against dp_accounting
        here = _repetition(self, np.array([order]), np.array([self.repeated.divergence(order)]))
        return float(min(here[0], _repetitions(self)[order <= _ORDERS].min(initial=math.inf)))

    def leak(self, epsilon: float) -> float:
        # P(S) ≤ P*(S) + τ ≤ e^ε Q*(S) + δ + τ ≤ e^ε (Q(S) + τ) + δ + τ (§2), for all of the ledger at once;
        # runs that leak with probability δ each are within E[K]δ of runs that do not
        return exceedance(self.total_variation + self.mean * self.repeated.leak(epsilon), epsilon)

    def is_run(self) -> bool:
        return False


_ORDERS = 1 + np.geomspace(1e-2, 1e5, 400)  # candidates for the auxiliary order of a repetition


def _repetition(event: RepeatAndSelectDpEvent, orders: np.ndarray, divergences: np.ndarray) -> np.ndarray:
    """Return the divergences of a repetition from those of one run (Papernot & Steinke 2022)."""
    repeated, own = divergences + math.log(event.mean) / (orders - 1), _divergences(event.repeated)
    if math.isinf(event.shape):  # Theorem 6
        gaps, base = np.log1p(1 / (orders - 1)), _ORDERS - 1
        logs = np.log1p(-1 / _ORDERS) * base - np.log(_ORDERS) + base * (own - gaps[:, None])
        return repeated + event.mean * np.exp(np.minimum(0.0, logs.min(axis=1)))
    return repeated + 2 * np.min((1 - 1 / _ORDERS) * own + math.log(event.mean) / _ORDERS)  # Theorem 2, γ = 1/mean


@lru_cache(maxsize=4)
def _repetitions(event: RepeatAndSelectDpEvent) -> np.ndarray:
    return _repetition(event, _ORDERS, _divergences(event.repeated))


@lru_cache(maxsize=4)
def _divergences(event: Event) -> np.ndarray:
    return np.array([event.divergence(float(order)) for order in _ORDERS])


@dataclass(frozen=True)
class PaddedDpEvent(Event):
    """An event over Poisson samples that are padded, or cut, to a public size (§10.8).

    `total_variation` bounds, in every world, how far the law of the run is from that of the event.
    """

    written_names: ClassVar[dict[str, str]] = {"event": "composed"}  # in data, "event" is the kind of event

    event: Event = _part()
    total_variation: float = between(0, 1)

    def divergence(self, order: float) -> float:
        return self.event.divergence(order)

    def leak(self, epsilon: float) -> float:
        # P(S) ≤ P*(S) + τ ≤ e^ε Q*(S) + δ + τ ≤ e^ε (Q(S) + τ) + δ + τ (§2), for all of the ledger at once
        return exceedance(self.total_variation, epsilon) + self.event.leak(epsilon)

    def gaussian_square(self) -> float | None:
        return self.event.gaussian_square()

    def concentration(self) -> float | None:
        return self.event.concentration()


@dataclass(frozen=True)
class RenyiDpEvent(Event):
    """A mechanism whose Rényi divergence is bounded at one order, as that of a run within a filter (§13)."""

    written_names: ClassVar[dict[str, str]] = {"bound": "divergence"}

    order: float = checked(within(1 + 1e-13, 1e30), "{} must be above 1 and at most 1e30")
    bound: float = checked(within(0, 1e300), "divergence must be from 0 to 1e300")

    def divergence(self, order: float) -> float:
        # D_α rises in α: (E_P t^(α-1))^(1/(α-1)), t = p/q, is a norm of t under P
        return self.bound if order <= self.order else math.inf

    def is_known_at(self, order: float) -> bool:
        return order <= self.order


def _of_all(join: Callable[[list[float]], float], values: list[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return join(known) if len(known) == len(values) else None


@dataclass(frozen=True)
class ComposedDpEvent(Event):
    """Several events on the same records, in sequence."""

    events: tuple[Event, ...] = _parts()

    def divergence(self, order: float) -> float:
        return math.fsum(part.divergence(order) for part in self.events)

    def leak(self, epsilon: float) -> float:
        return math.fsum(part.leak(epsilon) for part in self.events)

    def gaussian_square(self) -> float | None:
        return _of_all(math.fsum, [part.gaussian_square() for part in self.events])

    def concentration(self) -> float | None:
        return _of_all(math.fsum, [part.concentration() for part in self.events])


@dataclass(frozen=True)
class SelfComposedDpEvent(Event):
    """One event `count` times on the same records, in sequence."""

    written_names: ClassVar[dict[str, str]] = {"event": "composed"}

    event: Event = _part()
    count: int = whole()

    def divergence(self, order: float) -> float:
        return self.count * self.event.divergence(order)

    def leak(self, epsilon: float) -> float:
        return self.count * self.event.leak(epsilon)

    def gaussian_square(self) -> float | None:
        once = self.event.gaussian_square()
        return None if once is None else self.count * once

    def concentration(self) -> float | None:
        once = self.event.concentration()
        return None if once is None else self.count * once


@dataclass(frozen=True)
class DisjointDpEvent(Event):
    """Several events on disjoint parts of the records; the parts do not depend on the records' values.

    Neighbours differ in one part, so that each cost is that of the worst part.
    """

    events: tuple[Event, ...] = _parts()

    def divergence(self, order: float) -> float:
        return max(part.divergence(order) for part in self.events)

    def leak(self, epsilon: float) -> float:
        return max(part.leak(epsilon) for part in self.events)

    def gaussian_square(self) -> float | None:
        return _of_all(max, [part.gaussian_square() for part in self.events])

    def concentration(self) -> float | None:
        return _of_all(max, [part.concentration() for part in self.events])
