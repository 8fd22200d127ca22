"""Noisy counts of the values that records have, of a domain that is not public (privacy.md §26).

Known as a stability-based histogram: Korolova, Kenthapadi, Mishra & Ntoulas 2009 (Releasing search queries and clicks
privately); Bun, Nissim & Stemmer 2016.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from dbdp.privacy.accounting.events import ComposedDpEvent, EpsilonDeltaDpEvent, Release, check_epsilon_delta
from dbdp.privacy.counts import CountLaplace

Value = TypeVar("Value")
_ROUNDING = 1 - 1e-9  # of a tail, whose logarithm is rounded


@dataclass(frozen=True)
class DiscoveredValues:
    """Discrete Laplace noise of scale 2r/ε on the count of each value that occurs; counts below τ are not shown.

    Proof (privacy.md §26). A and B are the values that occur in two neighbours, which differ in r records. Values
    outside both are never shown, and noise is independent. Let E be the event that a value of A∖B is shown in the
    first world, F that one of B∖A is in the second. A∖B has m ≤ r values with counts k_1, …, k_m, Σk ≤ r, and
    P(k + noise ≥ τ) is convex in k ≤ τ. So P(E) ≤ Σ P(k_i + noise ≥ τ) ≤ max(P(r + noise ≥ τ), r·P(1 + noise ≥ τ)) ≤ δ,
    and so is P(F). Given not E, and given not F, the results are functions of the noisy counts of A∩B. There at most r
    records rise and r fall, so these are two releases of ε/2 (`CountLaplace`). Hence P = (1 - δ)P' + δU and
    Q = (1 - δ)Q' + δV, as privacy.md §13 requires, and P(S) ≤ e^ε Q(S) + δ. ∎
    """

    epsilon: float
    delta: float
    moved: int = 1  # r, the largest number of records in which neighbours differ

    def __post_init__(self) -> None:
        """Check ε and δ."""
        check_epsilon_delta(self.epsilon, self.delta)
        if self.delta == 0:
            raise ValueError(
                f"delta = {self.delta} must be above 0, since a value that only one row has must be shown with some "
                "probability; choose delta => 1e-6, or declare the categories that you know"
            )

    @cached_property
    def noise(self) -> CountLaplace:
        """The noise of each count."""
        return CountLaplace(2, self.epsilon, self.moved)

    @property
    def threshold(self) -> int:
        """τ, the least noisy count that is shown."""
        alone = 1 + self.noise.tail(self.delta / self.moved * _ROUNDING)
        return max(alone, self.moved + self.noise.tail(self.delta * _ROUNDING))

    @property
    def guarantee(self) -> Release:
        """The event, two releases of ε/2 of which one leaks with probability δ, and the stand-alone (ε, δ)."""
        half = math.nextafter(self.epsilon / 2, math.inf)
        event = ComposedDpEvent((EpsilonDeltaDpEvent(half, self.delta), EpsilonDeltaDpEvent(half, 0.0)))
        return Release(event, self.epsilon, self.delta)

    def release(self, counts: Mapping[Value, int], always: frozenset[Value]) -> dict[Value, int]:
        """Return the noisy counts of values that occur if they reach τ, and of those that are always shown."""
        known = {value: 0 for value in always} | dict(counts)
        noisy = self.noise.release(np.array([*known.values()], np.int64))
        pairs = zip(known, np.clip(noisy, -(2.0**62), 2.0**62).astype(np.int64).tolist(), strict=True)
        return {value: count for value, count in pairs if count >= self.threshold or value in always}
