"""Select the least of several values with Laplace noise on each, known as report noisy max.

privacy.md §8. The noise is discrete and exact, from the operating system's entropy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent, Release, check_epsilon_delta
from dbdp.privacy.mechanisms import ROOM, grid_for
from dbdp.privacy.noise.samplers import Entropy, discrete_laplace


@dataclass(frozen=True)
class NoisyMin:
    """Add Laplace noise of scale 2s/ε to every loss and choose the least: ε-DP, and so ε²/2-zCDP.

    Proof. On the grid r_i = ⌊loss_i/g⌋, and replacing one record moves r_i - r_j by at most
    D = 2(⌈s/g⌉ + 1) steps. Fix the noise of all candidates but j: candidate j is chosen where its own noise
    is at most T = min_i(r_i - r_j + ν_i - [i < j]), a whole number that moves by at most D. For discrete
    Laplace noise of scale t ≥ D/ε, P(ν_j ≤ T) ≤ e^{D/t} P(ν_j ≤ T - D) ≤ e^ε P(ν_j ≤ T'). ∎ A tie goes to the
    first. Only the exponential mechanism has a range of ε, and ε²/8 (§6).
    """

    epsilon: float  # ε of one selection
    sensitivity: float  # s: the difference of two losses moves by at most 2s when one record is replaced

    def __post_init__(self) -> None:
        """Check the parameters; `grid_for` checks the sensitivity."""
        check_epsilon_delta(self.epsilon, 0.0)
        grid_for(self.sensitivity, 1, 1.0)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, 0) of one selection."""
        return Release(EpsilonDeltaDpEvent(self.epsilon, 0.0), self.epsilon, 0.0)

    @property
    def grid(self) -> float:
        """The grid to which losses are rounded down, far below the noise."""
        return grid_for(self.sensitivity, 1, 1 / self.epsilon)

    @property
    def steps(self) -> int:
        """The noise's scale in steps of the grid, rounded up."""
        moved = 2 * (math.ceil(Fraction(self.sensitivity) / Fraction(self.grid)) + 1)
        return math.ceil(moved / Fraction(self.epsilon) * Fraction(ROOM))

    def choose(self, losses: Sequence[float]) -> int:
        """Return the index of a candidate, selected by the losses of all."""
        grid, entropy, scale = Fraction(self.grid), Entropy(), self.steps
        noisy = [math.floor(Fraction(loss) / grid) + discrete_laplace(scale, entropy) for loss in losses]
        return noisy.index(min(noisy))
