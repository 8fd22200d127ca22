"""Schedules: the step size of each update, as a function of its number, counted from 1.

Training and accounting use the same object, so that they cannot disagree (privacy.md §14.3).
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

Parameters = tuple[float, float, float]


class Schedule(Protocol):
    """The interface of a schedule."""

    name: ClassVar[str]
    code: ClassVar[int]

    @property
    def parameters(self) -> Parameters:
        """The three numbers that a state stores."""

    def step_sizes(self, first: int, count: int) -> np.ndarray:
        """Return the step sizes of updates first, …, first + count - 1, shape (count,)."""


@dataclass(frozen=True)
class Constant:
    """η_t = step_size."""

    step_size: float
    name: ClassVar[str] = "constant"
    code: ClassVar[int] = 1

    @property
    def parameters(self) -> Parameters:
        return self.step_size, 0.0, 0.0

    def step_sizes(self, first: int, count: int) -> np.ndarray:
        return np.full(count, self.step_size)


@dataclass(frozen=True)
class InverseTime:
    """η_t = min(1/β, 1/(γt)), for β-smooth and γ-strongly convex losses (Wu et al. 2017, Algorithm 2)."""

    smoothness: float
    strong_convexity: float
    name: ClassVar[str] = "inverse_time"
    code: ClassVar[int] = 2

    @property
    def parameters(self) -> Parameters:
        return self.smoothness, self.strong_convexity, 0.0

    def step_sizes(self, first: int, count: int) -> np.ndarray:
        return np.minimum(1.0 / self.smoothness, 1.0 / (self.strong_convexity * _updates(first, count)))


@dataclass(frozen=True)
class Decreasing:
    """η_t = 2/(β(t + offset)), with offset = m^c for m rows (Wu et al. 2017, Corollary 2)."""

    smoothness: float
    offset: float
    name: ClassVar[str] = "decreasing"
    code: ClassVar[int] = 3

    @property
    def parameters(self) -> Parameters:
        return self.smoothness, self.offset, 0.0

    def step_sizes(self, first: int, count: int) -> np.ndarray:
        return 2.0 / (self.smoothness * (_updates(first, count) + self.offset))


@dataclass(frozen=True)
class SquareRoot:
    """η_t = 2/(β(√t + offset)), with offset = m^c for m rows (Wu et al. 2017, Corollary 3)."""

    smoothness: float
    offset: float
    name: ClassVar[str] = "square_root"
    code: ClassVar[int] = 4

    @property
    def parameters(self) -> Parameters:
        return self.smoothness, self.offset, 0.0

    def step_sizes(self, first: int, count: int) -> np.ndarray:
        return 2.0 / (self.smoothness * (np.sqrt(_updates(first, count)) + self.offset))


@dataclass(frozen=True)
class Restarted:
    """η_t = step_size / h, where h counts epochs from the last restart (Chen, Lee & Kifer 2019; privacy.md §3)."""

    step_size: float
    batches: int  # updates of one epoch, N
    interval: int  # epochs between restarts, τ; 0 never restarts, so that h is the epoch
    name: ClassVar[str] = "restarted"
    code: ClassVar[int] = 5

    @property
    def parameters(self) -> Parameters:
        return self.step_size, float(self.batches), float(self.interval)

    def step_sizes(self, first: int, count: int) -> np.ndarray:
        epochs = np.arange(first - 1, first - 1 + count) // self.batches
        since = epochs % self.interval if self.interval else epochs
        return self.step_size / (since + 1.0)


SCHEDULES = {schedule.name: schedule for schedule in (Constant, InverseTime, Decreasing, SquareRoot, Restarted)}
BY_CODE = {schedule.code: schedule for schedule in SCHEDULES.values()}


def schedule_with(code: int, parameters: Parameters) -> Schedule:
    """Return the schedule that a state describes."""
    first, second, third = parameters
    if code == Constant.code:
        return Constant(first)
    if code == InverseTime.code:
        return InverseTime(first, second)
    if code == Decreasing.code:
        return Decreasing(first, second)
    if code == SquareRoot.code:
        return SquareRoot(first, second)
    if code == Restarted.code:
        return Restarted(first, *_counts(second, third))
    raise ValueError(f"schedule code {code} is unknown; known are {sorted(BY_CODE)}")


def _updates(first: int, count: int) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.float64)


def _counts(batches: float, interval: float) -> tuple[int, int]:
    """Return N and τ; whole numbers up to 2⁵³ survive as float64."""
    if not (1 <= batches <= 2**53 and 0 <= interval <= 2**53 and batches % 1 == interval % 1 == 0):
        raise ValueError(
            f"the state is damaged: its restarted schedule has {batches} updates and {interval} epochs; "
            "start with a new one"
        )
    return int(batches), int(interval)


@dataclass(frozen=True)
class Averaging:
    """Which iterates w_t are averaged: those with t ≥ first, none for first = 0."""

    first: int = 0  # number of the first update whose iterate is summed
    # After this many updates (complete epochs) the model becomes the mean of the iterates summed since the last time,
    # and the sum begins anew; 0: never.
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
