"""Private bounds of a column: a noisy histogram over signed powers of two, and a threshold.

Known as approximate bounds: Wilson, Zhang, Lam, Desfontaines, Simmons-Marengo & Gipson 2020 (Differentially Private
SQL with Bounded User Contribution), and Google's differential privacy library. privacy.md §10.7. Shapes: counts (B,),
the bins from the least number to the largest.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.scores.counting import CountPlan, quotient, shown

BETA = 1e-3
_POWERS = [2.0**power for power in range(-32, 65)]
_LARGEST = math.nextafter(math.inf, 0.0)
EDGES = [-_LARGEST, *(-power for power in reversed(_POWERS)), 0.0, *_POWERS, math.inf]
FAR = 1e300  # replaces the ends of the outermost bins: the largest bound that a declaration accepts


@dataclass(frozen=True)
class BoundsPlan(CountPlan):
    """The plan of a release of bounds, from public facts only. Neighbours are replace-one.

    Proof. The bins are public and disjoint: from one of `EDGES` to the next, without the upper end. A record's
    number is in one of them, and a null, a NaN or an infinity in none, so replacing it takes 1 from one count at
    most and adds 1 to one at most. The bounds are those of the outermost bins whose noisy count reaches T, a
    function of the noisy counts. P(noise ≥ T) ≤ β/B for each, so with probability 1 - β no empty bin does, and
    bounds are no wider than the range of the numbers, rounded outward to powers of two.
    """

    beta: float = BETA  # β, the largest probability that an empty bin reaches the threshold
    algorithm: ClassVar[str] = "bounds"

    def __post_init__(self) -> None:
        """Check ε, δ and β."""
        super().__post_init__()
        if not isinstance(self.beta, int | float) or not 1e-12 <= self.beta <= 0.5:
            raise ValueError(f"beta = {self.beta!r} must be a number from 1e-12 to 0.5; {BETA} suits most columns")

    @property
    def shape(self) -> tuple[int, ...]:
        """A count for each bin."""
        return (len(EDGES) - 1,)

    @property
    def threshold(self) -> int:
        """T, the least noisy count of a bin that counts as occupied."""
        return self.mechanism.tail(self.beta / (len(EDGES) - 1))

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""
        return super().explain() | {"beta": self.beta, "threshold": self.threshold}

    def answer(self, noisy: np.ndarray) -> dict[str, Any]:
        """Return the bounds, None if no bin reaches T, and the share of all rows outside them."""
        occupied = np.flatnonzero(noisy >= self.threshold)
        edges = np.clip(EDGES, -FAR, FAR).tolist()
        first, last = (int(occupied[0]), int(occupied[-1]) + 1) if len(occupied) else (0, 0)

        def outside(counts: np.ndarray) -> np.ndarray:
            rows = self.rows if self.has_public_rows else counts.sum()
            return 1 - quotient(counts[first:last].sum(keepdims=True), rows)

        return {
            "lower": edges[first] if len(occupied) else None,
            "upper": edges[last] if len(occupied) else None,
            "outside": shown(np.clip(outside(noisy)[0], 0.0, 1.0)),
            "outside_noise": shown(self.half_widths(outside, noisy)[0]),
            "threshold": self.threshold,
            "bins": [
                {"lower": edges[place], "upper": edges[place + 1], "rows": int(noisy[place])}
                for place in occupied.tolist()
            ],
            "count_noise": self.half_width,
        }
