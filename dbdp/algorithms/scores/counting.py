"""Base of all private counts: the plan, its noise, and the error of computed figures.

privacy.md §10.7. Shapes: counts have the plan's `shape`, int64; a figure is a number computed from them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.plan import relation
from dbdp.privacy.accounting.events import Release, check_epsilon_delta
from dbdp.privacy.counts import CountNoise, count_noise

COVERED = {"coverage": 1.0, "coverage_noise": 0.0}  # if every row has an answer, which is public
LEVEL = 0.95  # confidence level of the intervals
_DRAWS = 500  # of noise, for the interval of a figure, whose end errs by about a thirtieth
_MOST = 2**53  # integers below it are exact floats


@dataclass(frozen=True)
class CountPlan(ABC):
    """The plan of a release of counts, from public facts only.

    Proof (privacy.md §10.7). A record adds to the counts by a function of itself and of public facts alone, and of
    its place among the rows, which neighbours share. So a neighbour with `moved` other records has counts that
    differ in `cells` groups, in each by moved·step in all: with two, those that the new records add to and those
    that the old ones added to; with one, a single count. `CountLaplace` and `CountGaussian` assume exactly that.
    """

    epsilon: float
    delta: float
    rows: int  # public number of records
    moved: int = field(default=1, kw_only=True)  # largest number of records in which neighbours differ
    # Whether the number of records is public; else `rows` is that of slots, and shares are of the counted records.
    has_public_rows: bool = field(default=True, kw_only=True)
    # Whether a row may have no answer: these are counted, as wrong ones (privacy.md §22.2).
    partial: bool = field(default=False, kw_only=True)
    algorithm: ClassVar[str]

    def __post_init__(self) -> None:
        """Check ε and δ, and that no count is too large for a float."""
        check_epsilon_delta(self.epsilon, self.delta)
        if self.rows * self.step >= _MOST:
            raise ValueError(f"rows = {self.rows} must be fewer than {_MOST // self.step} here; use a smaller table")

    @property
    def cells(self) -> int:
        """Groups of counts that change."""
        return 2

    @property
    def step(self) -> int:
        """Largest change of a count by one record."""
        return 1

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the counts."""

    @abstractmethod
    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the released figures, a function of the noisy counts alone (post-processing)."""

    @cached_property
    def mechanism(self) -> CountNoise:
        """The noise of all counts."""
        moved, dimension = self.moved * self.step, math.prod(self.shape)
        return count_noise(self.cells, self.epsilon, self.delta, moved=moved, dimension=dimension)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return self.mechanism.guarantee

    @property
    def half_width(self) -> int:
        """Half the width of a count's 95 % interval: its noise exceeds it in at most 5 of 100 releases."""
        return self.mechanism.tail((1 - LEVEL) / 2) - 1

    def release(self, counts: np.ndarray) -> np.ndarray:
        """Return the noisy counts, int64, of the plan's shape; they may be below 0."""
        noisy = self.mechanism.release(counts.ravel())
        return np.clip(noisy, -(2.0**62), 2.0**62).astype(np.int64).reshape(self.shape)

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""
        return {
            "algorithm": self.algorithm,
            **relation(self.rows, self.moved),
            "cells": math.prod(self.shape),
            "sensitivity": self.mechanism.sensitivity,
            "mechanism": self.mechanism.name,
            "noise_scale": self.mechanism.noise_scale,
            "count_noise": self.half_width,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
        }

    @property
    def is_quotient(self) -> bool:
        """Whether figures are quotients of noisy counts: the number of rows, or of those with an answer, is private."""
        return self.partial or not self.has_public_rows

    def coverage(self, share: float, width: float) -> dict[str, float | None]:
        """Return the share of rows with an answer and its error; 1 and 0 if every row has one, which is public."""
        return {"coverage": shown(share), "coverage_noise": shown(width)} if self.partial else dict(COVERED)

    def half_widths(self, figures: Callable[[np.ndarray], np.ndarray], noisy: np.ndarray) -> np.ndarray:
        """Return half the width of each figure's 95 % interval, shape (f,); NaN for an undefined figure.

        It simulates the noise on the noisy counts, which is post-processing. `figures` must not clip counts
        below 0, since clipping would hide the noise.

        `figures` maps counts of the plan's shape to figures (f,), NaN for one that is undefined.
        """
        return half_widths(figures, noisy, self._simulated())

    def _simulated(self) -> Iterator[np.ndarray]:
        """Yield simulated noise of the plan's shape, approximately of the mechanism's law; privacy needs none.

        One draw at a time: all of them together would be gigabytes of a thousand classes, after the charge.
        """
        scale, random = self.mechanism.noise_scale, np.random.default_rng()
        stop = -math.expm1(-1 / scale)  # a discrete Laplace number is the difference of two geometric ones
        for _ in range(_DRAWS):
            if self.delta:
                yield np.rint(random.normal(0.0, scale, self.shape))
            else:
                yield (random.geometric(stop, self.shape) - random.geometric(stop, self.shape)).astype(np.float64)


def half_widths(
    figures: Callable[[np.ndarray], np.ndarray], noisy: np.ndarray, draws: Iterable[np.ndarray]
) -> np.ndarray:
    """Return half the width of each figure's 95 % interval, (f,), by draws of noise (m, *shape) on noisy counts."""
    return widths_of(np.array([figures(noisy + noise) for noise in draws]), figures(noisy))


def widths_of(moved: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return half the width of each figure's 95 % interval, (f,), by figures with more noise, (m, f), and without."""
    apart = np.nan_to_num(np.abs(moved - own), copy=False, nan=math.inf, posinf=math.inf)
    apart.sort(axis=0)
    widths = apart[math.ceil(LEVEL * len(apart)) - 1]
    return np.where(np.isfinite(widths) & np.isfinite(own), widths, math.nan)


def quotient(part: Any, total: Any) -> np.ndarray:
    """Return part / total, NaN where the total is not above 0."""
    total = np.asarray(total, np.float64)
    with np.errstate(all="ignore"):
        return np.where(total > 0, np.asarray(part) / total, np.nan)


def shown(value: float) -> float | None:
    """Return a figure for JSON: None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def with_errors(names: Iterable[str], values: np.ndarray, widths: np.ndarray) -> dict[str, dict[str, float | None]]:
    """Return figures by name, each with half the width of its interval; None for NaN and infinity."""
    pairs = zip(names, shown_all(values), shown_all(widths), strict=True)
    return {name: {"value": value, "plus_minus": width} for name, value, width in pairs}


def shown_all(values: np.ndarray) -> list[float | None]:
    """Return figures for JSON: None for NaN and infinity."""
    return [shown(value) for value in values.tolist()]
