"""Noise for counts: whole numbers in, whole numbers out, exactly.

privacy.md §2(ii). Entropy is the operating system's. Shapes: counts are (d,).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dbdp.privacy.events import EpsilonDeltaDpEvent, Release, SelfComposedDpEvent, check_epsilon_delta
from dbdp.privacy.samplers import Entropy, discrete_laplace


@dataclass(frozen=True)
class CountLaplace:
    """Independent discrete Laplace noise of scale `cells`·r/ε on each of several counts: exactly ε-DP.

    Replacing one record moves at most `cells` of the counts, each by at most 1. Proof. P(k) ∝ e^{-|k|ε/cells},
    so a count that moves by 1 changes the log of its probability by at most ε/cells, and the others by nothing:
    ε together. The noise of the counts is independent, so the loss is that of `cells` mechanisms of ε/cells, and
    is charged as that: at small ε 1/`cells` of the charge of a pure ε. Counts and noise are whole numbers, and
    the scale is a fraction: nothing is rounded.

    Where r = `rows` records are replaced together, and each takes 1 from one count at most and adds 1 to one at most
    (`cells` = 2), counts fall by r at most and rise by r at most: L1 distance 2r. The charge is the same. Proof. With
    d(x) the largest divergence of a pure x, d(x) + d(y) ≤ d(x + y), since two releases of x and y are a pure x + y.
    A count that moves by s costs d(sε/2r): those that fall cost d(ε/2) together at most, and so do those that rise. ∎
    """

    cells: int
    epsilon: float
    rows: int = 1
    name: ClassVar[str] = "discrete_laplace"

    def __post_init__(self) -> None:
        """Check ε."""
        check_epsilon_delta(self.epsilon, 0.0)

    @property
    def scale(self) -> Fraction:
        """The noise's scale t: P(k) ∝ e^{-|k|/t}; at least cells·r/ε, for ε as a float and as a person writes it."""
        return self.cells * self.rows / min(Fraction(self.epsilon), Fraction(repr(float(self.epsilon))))

    @property
    def noise_scale(self) -> float:
        """The noise's scale."""
        return float(self.scale)

    @property
    def sensitivity(self) -> float:
        """The L1 sensitivity of the counts together."""
        return float(self.cells * self.rows)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, 0)."""
        each = EpsilonDeltaDpEvent(math.nextafter(self.epsilon / self.cells, math.inf), 0.0)
        return Release(SelfComposedDpEvent(each, self.cells), self.epsilon, 0.0)

    def release(self, counts: np.ndarray) -> np.ndarray:
        """Return the noisy counts, whole numbers as floats."""
        scale, entropy = self.scale, Entropy()
        noise = (discrete_laplace(scale.numerator, entropy, scale.denominator) for _ in counts)
        return np.array([float(int(count) + each) for count, each in zip(counts.tolist(), noise, strict=True)])
