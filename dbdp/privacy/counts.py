"""Exact noise for counts: integers in, integers out.

privacy.md §2(ii), §10.7. Entropy is the operating system's. Shapes: counts are (d,) int64.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent, Release, SelfComposedDpEvent, check_epsilon_delta
from dbdp.privacy.mechanisms import ROOM, Gaussian
from dbdp.privacy.noise.samplers import Entropy, discrete_laplace


@dataclass(frozen=True)
class CountLaplace:
    """Independent discrete Laplace noise of scale `cells`·`moved`/ε on each of several counts: exactly ε-DP.

    A neighbour's counts differ in at most `cells` groups (with two: those that rise and those that fall), in each
    by `moved` in all. Proof. P(k) ∝ e^{-|k|/t}, so a count that moves by s changes the log of its probability by at
    most s/t, and a group by `moved`/t = ε/cells in all: ε together. The noise is independent, so the loss is that of
    `cells` mechanisms of ε/cells, and is charged as that: at small ε 1/`cells` of the charge of a pure ε. Counts
    and noise are integers, and the scale is a fraction: nothing is rounded.
    """

    cells: int
    epsilon: float
    moved: int = 1
    name: ClassVar[str] = "discrete_laplace"

    def __post_init__(self) -> None:
        """Check ε."""
        check_epsilon_delta(self.epsilon, 0.0)

    @property
    def scale(self) -> Fraction:
        """The scale t of the noise, P(k) ∝ e^{-|k|/t}: at least cells·moved/ε, for ε as a float and as a decimal."""
        return self.cells * self.moved / min(Fraction(self.epsilon), Fraction(repr(float(self.epsilon))))

    @property
    def noise_scale(self) -> float:
        """The scale of the noise, as a float."""
        return float(self.scale)

    @property
    def sensitivity(self) -> float:
        """The L1 sensitivity of the counts together."""
        return float(self.cells * self.moved)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, 0)."""
        each = EpsilonDeltaDpEvent(math.nextafter(self.epsilon / self.cells, math.inf), 0.0)
        return Release(SelfComposedDpEvent(each, self.cells), self.epsilon, 0.0)

    def release(self, counts: np.ndarray) -> np.ndarray:
        """Return the noisy counts, shape (d,), integers as floats."""
        scale, entropy = self.scale, Entropy()
        noise = (discrete_laplace(scale.numerator, entropy, scale.denominator) for _ in counts)
        return np.array([float(int(count) + each) for count, each in zip(counts.tolist(), noise, strict=True)])

    def tail(self, chance: float) -> int:
        """Return the least integer T > 0 with P(noise of a count ≥ T) = e^{-T/t}/(1 + e^{-1/t}) ≤ chance."""
        return max(1, math.ceil(-self.noise_scale * math.log(chance * (1 + math.exp(-1 / self.noise_scale)))))


@dataclass(frozen=True)
class CountGaussian:
    """Independent Gaussian noise on each of several counts, rounded to integers.

    A neighbour's counts differ as for `CountLaplace`. Proof. A group that moves by `moved` in all has L2 norm
    `moved` at most, and the groups have no count in common: √cells·moved together. `Gaussian` is (ε, δ)-DP for
    that, and rounding is post-processing. Integers below 2⁵³ are exact floats.
    """

    gaussian: Gaussian
    name: ClassVar[str] = Gaussian.name

    @classmethod
    def of(cls, cells: int, epsilon: float, delta: float, *, moved: int, dimension: int) -> "CountGaussian":
        """Return the noise of `dimension` counts, calibrated as the analytic Gaussian."""
        distance = math.sqrt(cells) * moved * ROOM
        return cls(Gaussian.calibrated(epsilon=epsilon, delta=delta, sensitivity=distance, dimension=dimension))

    @property
    def noise_scale(self) -> float:
        """The standard deviation of a count's noise."""
        return self.gaussian.noise_scale

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity of the counts together, with the rounding to the grid."""
        return self.gaussian.sensitivity

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return self.gaussian.guarantee

    def release(self, counts: np.ndarray) -> np.ndarray:
        """Return the noisy counts, shape (d,), integers as floats."""
        return np.rint(self.gaussian.release(counts.astype(np.float64)))

    def tail(self, chance: float) -> int:
        """Return the least integer T > 0 with P(noise of a count ≥ T) ≤ chance, up to floating point."""
        return max(1, math.ceil(0.5 - self.noise_scale * NormalDist().inv_cdf(chance)))


CountNoise = CountLaplace | CountGaussian


def count_noise(cells: int, epsilon: float, delta: float, *, moved: int, dimension: int) -> CountNoise:
    """Return the noise of `dimension` counts: discrete Laplace where δ is 0, else Gaussian."""
    if delta == 0:
        return CountLaplace(cells, epsilon, moved)
    return CountGaussian.of(cells, epsilon, delta, moved=moved, dimension=dimension)
