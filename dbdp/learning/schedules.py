"""Schedules: the number of an update, counted from 1, to its step size.

The executor and the accountant ask the same object, so they cannot disagree (privacy.md §14.3).
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np


class Schedule(Protocol):
    """What every schedule offers."""

    name: ClassVar[str]
    code: ClassVar[int]

    @property
    def parameters(self) -> tuple[float, float]:
        """The two numbers that the state carries."""

    def step_sizes(self, first: int, count: int) -> np.ndarray:
        """Return the step sizes of updates first, …, first + count - 1, shape (count,)."""


@dataclass(frozen=True)
class Constant:
    """η_t = step_size."""

    step_size: float
    name: ClassVar[str] = "constant"
    code: ClassVar[int] = 1

    @property
    def parameters(self) -> tuple[float, float]:
        return self.step_size, 0.0

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
    def parameters(self) -> tuple[float, float]:
        return self.smoothness, self.strong_convexity

    def step_sizes(self, first: int, count: int) -> np.ndarray:
        updates = np.arange(first, first + count, dtype=np.float64)
        return np.minimum(1.0 / self.smoothness, 1.0 / (self.strong_convexity * updates))


SCHEDULES = {schedule.name: schedule for schedule in (Constant, InverseTime)}
BY_CODE = {schedule.code: schedule for schedule in SCHEDULES.values()}


def schedule_with(code: int, parameters: tuple[float, float]) -> Schedule:
    """Return the schedule that a state describes.

    Raises
    ------
    ValueError
        If no schedule has that code.
    """
    if code == Constant.code:
        return Constant(parameters[0])
    if code == InverseTime.code:
        return InverseTime(*parameters)
    raise ValueError(f"schedule code {code} is unknown; known are {sorted(BY_CODE)}")
