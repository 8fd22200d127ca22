"""Private counts of the rows of each class. Shapes: counts (K,), K classes, two for a binary label."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.scores.counting import CountPlan, quotient, shown, shown_all
from dbdp.learning.counts.tallies import Labels


@dataclass(frozen=True)
class ClassBalancePlan(CountPlan):
    """The plan of a release of class counts, from public facts only. Neighbours are replace-one.

    Proof. A record is counted for the class of its own label, apart if it has a label and cannot be packed, and nowhere
    if it has no label of the declaration: replacing it takes 1 from one count at most and adds 1 to one at most.
    """

    outputs: int  # linear models of a training: 1 for a binary label, else the number of classes
    algorithm: ClassVar[str] = "class_balance"

    @property
    def tally(self) -> Labels:
        """The tally of the rows."""
        return Labels(self.outputs, self.partial)

    @property
    def shape(self) -> tuple[int, ...]:
        """A count for each class, and one of the rows that cannot be packed, if there may be some."""
        return (max(self.outputs, 2) + self.partial,)

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return counts, shares of the counted rows, and for a binary label the positive_weight that balances it.

        Counts below 0 count as 0.
        """
        widths, figures = self.half_widths(self._figures, noisy), self._figures(np.maximum(noisy, 0))
        answer = {
            "counts": noisy[: self._classes].tolist(),
            "count_noise": self.half_width,
            "shares": shown_all(figures[:-2]),
            "share_noise": shown_all(widths[:-2]),
        }
        if self.outputs == 1:
            answer |= {"positive_weight": shown(figures[-2]), "positive_weight_noise": shown(widths[-2])}
        return answer | self.coverage(figures[-1], widths[-1])

    @property
    def _classes(self) -> int:
        return max(self.outputs, 2)

    def _figures(self, cells: np.ndarray) -> np.ndarray:
        """Return the shares, the rows of the first class per row of the last, and coverage; NaN where undefined."""
        counts = cells[: self._classes]
        shares, weight = quotient(counts, counts.sum()), quotient(counts[0], counts[-1])
        return np.concatenate([shares, [weight, quotient(counts.sum(), cells.sum())]])
