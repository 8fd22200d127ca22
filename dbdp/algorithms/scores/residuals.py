"""Private mean absolute or mean squared error of a released regression model.

Prediction and label are clipped to the declared bounds, as the label is for training.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.algorithms.scores.counting import COVERED, CountPlan, quotient, shown
from dbdp.learning.counts.tallies import STEPS, Errors

POWERS = {"mean_absolute_error": 1, "mean_squared_error": 2}


@dataclass(frozen=True)
class ResidualPlan(CountPlan):
    """The plan of a release of a mean error, from public facts only. Neighbours are replace-one.

    Proof. A record adds a whole number from 0 to `step` to the one sum, by a function of the record alone: its
    error within the public bounds, |ŷ - y|^p, in steps of 2⁻²⁰ of ((upper - lower)/2)^p. Replacing it moves the
    sum by `step` at most, which is (upper - lower)^p. Integers add up exactly, in any order: there is no
    margin (privacy.md §14.8). The number of rows is public; a record without a label has no error. Where their number
    is private, or a row may have no answer, `step` is added to a second count for each record with an answer, and to a
    third one for each without: neighbours differ by at most moved·step in each, as the groups of `CountPlan` do, and
    the quotient of the first two is the mean, of the rows with an answer.
    """

    metric: str  # one of POWERS
    bounds: tuple[float, float]  # (lower, upper) bounds of the label

    @property
    def algorithm(self) -> str:  # type: ignore[override]
        """The metric's name."""
        return self.metric

    @property
    def tally(self) -> Errors:
        """The tally of the rows."""
        return Errors(POWERS[self.metric], rows=self.is_quotient, partial=self.partial)

    @property
    def cells(self) -> int:
        """Groups of counts that change."""
        return self.shape[0]

    @property
    def step(self) -> int:
        """Largest change of the sum by one record."""
        return self.tally.most

    @property
    def shape(self) -> tuple[int, ...]:
        """The sum of the errors; of a quotient `step` times the rows with an answer, and those without one."""
        return (1 + self.is_quotient + self.partial,)

    def explain(self) -> dict[str, Any]:
        """Return the plan as data; sensitivity and noise scale are in steps of the sum, each worth `unit`."""
        return super().explain() | {"unit": self._unit}

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the mean error over all rows, in the label's units or their square, at least 0; and its noise.

        It is None where the number of rows is private, and the noise leaves none.
        """
        if self.is_quotient:
            figures, widths = self._means(np.maximum(noisy, 0)), self.half_widths(self._means, noisy)
            answer = {self.metric: shown(figures[0]), f"{self.metric}_noise": shown(widths[0])}
            return answer | self.coverage(figures[1], widths[1])
        scale = self._unit / self.rows
        return {
            self.metric: max(0.0, int(noisy[0]) * scale),
            f"{self.metric}_noise": self.half_width * scale,
            **COVERED,
        }

    def _means(self, counts: np.ndarray) -> np.ndarray:
        """Return the mean error, and the share of rows with an answer, shape (2,), NaN where there are no rows."""
        mean = quotient(counts[0], counts[1] / self.step) * self._unit
        return np.array([mean, quotient(counts[1], counts[1:].sum())])

    @property
    def _unit(self) -> float:
        lower, upper = self.bounds
        return ((upper - lower) / 2) ** self.tally.power / STEPS
