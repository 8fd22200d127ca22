"""The mean absolute or mean squared error of a released model of numbers, with noise.

Prediction and label are clipped to the declared bounds, as the label was for the training.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.scores.counting import CountPlan
from dbdp.learning.tallies import STEPS, Errors

POWERS = {"mean_absolute_error": 1, "mean_squared_error": 2}


@dataclass(frozen=True)
class ResidualPlan(CountPlan):
    """What showing a mean error will do and cost, from public facts only. Neighbours are replace-one.

    Proof. A record adds a whole number from 0 to `step` to the one sum, by a function of the record alone: its
    error within the public bounds, |ŷ - y|^p, in steps of 2⁻²⁰ of ((upper - lower)/2)^p. Replacing it moves the
    sum by `step` at most, which is (upper - lower)^p. Whole numbers add up exactly, in any order: there is no
    margin (privacy.md §14.8). The number of rows is public; a record that cannot be packed has no error.

    Attributes
    ----------
    metric : str
        One of POWERS.
    bounds : tuple[float, float]
        (lower, upper) of the label.
    """

    metric: str
    bounds: tuple[float, float]
    cells: ClassVar[int] = 1

    @property
    def algorithm(self) -> str:  # type: ignore[override]
        """The metric's name."""
        return self.metric

    @property
    def tally(self) -> Errors:
        """What the rows add up to."""
        return Errors(POWERS[self.metric])

    @property
    def step(self) -> int:
        """What one record may move the sum by."""
        return self.tally.most

    @property
    def shape(self) -> tuple[int, ...]:
        """One sum."""
        return (1,)

    def explain(self) -> dict[str, Any]:
        """Return the plan as data; sensitivity and noise scale are in steps of this unit of the sum."""
        return super().explain() | {"unit": self._unit}

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the mean over all rows, in the label's units or their square; not below 0."""
        scale = self._unit / self.rows
        return {
            self.metric: max(0.0, int(noisy[0]) * scale),
            f"{self.metric}_noise": self.half_width * scale,
        }

    @property
    def _unit(self) -> float:
        lower, upper = self.bounds
        return ((upper - lower) / 2) ** self.tally.power / STEPS
