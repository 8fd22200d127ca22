"""The noise of a table of scores: Gaussian as a part of a training's μ², or Laplace as a part of its ε.

privacy.md §21.1. A tally counts in whole PARTS of a row; a noisy table is in rows. Shapes: a tally is a vector (m,).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dbdp.algorithms.noisy_sums import gaussian_sum
from dbdp.learning.counts.score_tables import NODES, PARTS
from dbdp.privacy.accounting.events import ComposedDpEvent, Event
from dbdp.privacy.counts import CountLaplace
from dbdp.privacy.mechanisms import ROOM, Gaussian

CONSTANT_SHARE = 1 / 16  # of a Laplace table's ε, for the sum of the rows' constants


@dataclass(frozen=True)
class GaussianTable:
    """Gaussian noise for a table of K = `outputs` scores; `multiplier` is σ in units of the sensitivity."""

    outputs: int
    multiplier: float
    has_constant: ClassVar[bool] = False

    @property
    def sensitivity(self) -> float:
        """√(2K): how far one replaced record moves the table, in rows.

        Proof (privacy.md §21.1). Given the released model, a record adds to the table a function of itself. In each of
        K outputs it adds (1 - f, f) to two cells, a vector v ≥ 0 of norm at most 1, or nothing: ‖v‖² ≤ K. Two such
        vectors have ⟨v, v'⟩ ≥ 0, so that ‖v - v'‖² ≤ ‖v‖² + ‖v'‖² ≤ 2K. Counts are whole parts of a row: there is no
        rounding. ∎ Attained by a row at a node that is replaced by one of another class, K = 1.
        """
        return math.sqrt(2 * self.outputs) * ROOM

    @cached_property
    def _noise(self) -> Gaussian:
        return gaussian_sum(self.sensitivity, self.outputs * 2 * NODES, multiplier=self.multiplier)

    @property
    def deviation(self) -> float:
        """The standard deviation of a cell, in rows."""
        return self._noise.noise_scale

    def release(self, tally: np.ndarray) -> np.ndarray:
        """Return the noisy table, in rows."""
        return self._noise.release(tally / PARTS)

    def simulated(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return noise of about this law, for intervals; privacy needs none of it."""
        return np.random.default_rng().normal(0.0, self.deviation, shape)


@dataclass(frozen=True)
class LaplaceTable:
    """Discrete Laplace noise for a table of K = `outputs` scores, and for the sum of the constants: ε in all.

    A unit of privacy has up to `unit_rows` records.
    """

    outputs: int
    epsilon: float
    unit_rows: int = 1
    has_constant: bool = True  # whether a last number adds up the rows' constants

    @property
    def cells(self) -> CountLaplace:
        """The noise of the table, in parts: for 2K groups of cells, each of which moves by r·PARTS in all.

        Proof (privacy.md §21.1). Given the released model, a record adds to the table a function of itself: in each of
        K outputs PARTS, divided between two cells, or nothing. So where it is replaced, the cells of an output that
        rise do so by PARTS at most in all, and those that fall too: 2K groups, ‖Δ‖₁ ≤ 2K·PARTS, and for r records r
        times that. ∎ Attained by a row at a node that is replaced by one at another node.
        """
        epsilon = math.nextafter(self.epsilon * (1 - CONSTANT_SHARE * self.has_constant), 0)
        return CountLaplace(2 * self.outputs, epsilon, self.unit_rows * PARTS)

    @property
    def constant(self) -> CountLaplace:
        """The noise of the sum of constants, in parts, each from 0 to PARTS: a replaced record moves it by PARTS."""
        return CountLaplace(1, self.epsilon * CONSTANT_SHARE, self.unit_rows * PARTS)

    @property
    def event(self) -> Event:
        """The event of both, whose ε is at most `epsilon`."""
        table = self.cells.guarantee.event
        return ComposedDpEvent((table, self.constant.guarantee.event)) if self.has_constant else table

    @property
    def deviation(self) -> float:
        """The standard deviation of a cell, in rows: √2 times the scale."""
        return math.sqrt(2) * self.cells.noise_scale / PARTS

    def release(self, tally: np.ndarray) -> np.ndarray:
        """Return the noisy table, and the noisy sum of constants if there is one, in rows."""
        cells = self.outputs * 2 * NODES
        noisy = [self.cells.release(tally[:cells]), self.constant.release(tally[cells:])]
        return np.concatenate(noisy) / PARTS

    def simulated(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return noise of about this law, for intervals; privacy needs none of it."""
        return np.random.default_rng().laplace(0.0, self.cells.noise_scale / PARTS, shape)
