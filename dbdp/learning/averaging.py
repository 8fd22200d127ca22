"""Averaging: which iterates make up the model.

An iterate w_t is the model after update t, counted from 1; the start w_0 is never one. None: (0, 0);
all iterates: (1, 0); those of the last epoch: (T - N + 1, 0), for T updates, N in an epoch; those
since the last restart, which begins from their mean (Chen, Lee & Kifer 2019; privacy.md §3): (1, Nτ).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Averaging:
    """Iterates w_t with t ≥ first are summed (0: never); see `interval`.

    Attributes
    ----------
    first : number of the first update whose iterate counts
    interval : after so many updates, always whole epochs, the model becomes the mean of the iterates
        summed since the last time, and the sum begins anew; 0: never
    """

    first: int = 0
    interval: int = 0

    def __post_init__(self) -> None:
        if self.first < 0 or self.interval < 0:
            raise ValueError(f"averaging from update {self.first} every {self.interval} updates; choose 0 or more")
        if self.interval and not self.first:
            raise ValueError(f"averaging every {self.interval} updates needs iterates to average; choose first = 1")

    def summed(self, updates: int) -> int:
        """Return how many of the iterates w_1, …, w_updates are summed."""
        return max(0, updates - self.first + 1) if self.first else 0


NONE = Averaging()
