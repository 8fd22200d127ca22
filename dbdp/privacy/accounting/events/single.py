"""Events of one mechanism: noise, randomised response, a selection; dp_accounting's names where it has them.

privacy.md §13. Curves that are exact: `curves`.
"""

import math
from dataclasses import dataclass

import numpy as np

from dbdp.privacy.accounting import curves
from dbdp.privacy.accounting.calibration import mixture_divergence
from dbdp.privacy.accounting.events.bounds import (
    MAX_EPSILON,
    MIN_EPSILON,
    exceedance,
    pure_concentration,
    pure_divergence,
    pure_mean,
)
from dbdp.privacy.accounting.events.event import Event, between, checked, delta, every, whole
from dbdp.privacy.accounting.subsampling import MOST_ROWS, poisson_gaussian_divergence

MOST_CORNERS = 8


@dataclass(frozen=True)
class GaussianDpEvent(Event):
    """Exactly rounded Gaussian noise of standard deviation noise_multiplier × sensitivity."""

    noise_multiplier: float = between(1e-9, 1e12)

    def divergence(self, order: float) -> float:
        return order / (2 * self.noise_multiplier**2)

    def gaussian_square(self) -> float:
        return self.noise_multiplier**-2

    def concentration(self) -> float:
        return 1 / (2 * self.noise_multiplier**2)

    def as_replace_one(self) -> Event:
        return GaussianDpEvent(self.noise_multiplier / 2)


@dataclass(frozen=True)
class ZCDpEvent(Event):
    """A mechanism of which only its ρ-zCDP is used: the discrete Gaussian has ρ = Δ²/2σ²."""

    rho: float = between(1e-24, 1e18)

    def divergence(self, order: float) -> float:
        return order * self.rho

    def concentration(self) -> float:
        return self.rho

    def as_replace_one(self) -> Event:
        return ZCDpEvent(4 * self.rho)  # of a Gaussian, whose sensitivity at most doubles


@dataclass(frozen=True)
class EpsilonDeltaDpEvent(Event):
    """A mechanism of which only its (ε, δ) is used; δ = 0 is pure ε."""

    epsilon: float = between(MIN_EPSILON, MAX_EPSILON)
    delta: float = delta()

    def divergence(self, order: float) -> float:
        # "leak with probability δ, else ε-randomised response" has the same trade-off function (Blackwell)
        return pure_divergence(self.epsilon, order)

    def leak(self, epsilon: float) -> float:
        return self.delta

    def gaussian_square(self) -> float:
        return pure_mean(self.epsilon) ** 2

    def concentration(self) -> float:
        return pure_concentration(self.epsilon)

    def as_replace_one(self) -> "EpsilonDeltaDpEvent":
        return EpsilonDeltaDpEvent(2 * self.epsilon, exceedance(self.delta, self.epsilon))


@dataclass(frozen=True)
class SphericalLaplaceDpEvent(Event):
    """Exactly rounded noise with a density ∝ exp(-ε‖z‖₂/sensitivity) on `dimension` coordinates: pure ε, and less."""

    epsilon: float = between(MIN_EPSILON, MAX_EPSILON)
    dimension: int = whole()

    def divergence(self, order: float) -> float:
        return min(
            pure_divergence(self.epsilon, order), curves.spherical_divergence(self.epsilon, self.dimension, order)
        )

    def gaussian_square(self) -> float:
        return min(pure_mean(self.epsilon) ** 2, curves.spherical_gaussian_square(self.epsilon, self.dimension))

    def concentration(self) -> float:
        return min(pure_concentration(self.epsilon), curves.spherical_concentration(self.epsilon, self.dimension))

    def as_replace_one(self) -> Event:
        return SphericalLaplaceDpEvent(2 * self.epsilon, self.dimension)


@dataclass(frozen=True)
class PerturbedMinimumDpEvent(Event):
    """The exact minimum of an objective with noise (§7): pure ε, or (ε, δ) if the noise is Gaussian."""

    # The noise for a sensitivity of 2L, L that of all models together.
    noise: Event = checked(
        lambda value: isinstance(value, GaussianDpEvent | SphericalLaplaceDpEvent),
        "`{}` must be Gaussian or spherical Laplace",
    )
    outputs: int = whole()  # number K of models
    # c/(nΛ): by up to a factor of 1 plus that a row changes the determinant of each model.
    curvature: float = between(0, 1e6)
    # Lengths, in units of 2L, of the corners of one model's slopes that are not 0.
    corners: tuple[float, ...] = checked(
        lambda value: every(0, 1)(value) and len(value) <= MOST_CORNERS,
        f"{{}} must be up to {MOST_CORNERS} lengths from 0 to 1",
    )
    epsilon: float = between(MIN_EPSILON, MAX_EPSILON)
    delta: float = delta()

    def divergence(self, order: float) -> float:
        if isinstance(self.noise, GaussianDpEvent):
            mean = 1 / self.noise.noise_multiplier
            gain = curves.gaussian_gain(tuple(mean * length for length in self.corners), order)
            ours = curves.perturbed_divergence(mean, self.curvature, self.outputs, order)
            return min(ours, curves.corner_divergence(gain, self.curvature, self.outputs, order))
        pure = pure_divergence(self.epsilon, order)
        if self.outputs > 1 or not isinstance(self.noise, SphericalLaplaceDpEvent):
            return pure  # the noise of several models is not independent
        epsilon, dimension = self.noise.epsilon, self.noise.dimension
        gain = curves.spherical_gain(tuple(epsilon * length for length in self.corners), dimension, order)
        return min(pure, curves.corner_divergence(gain, self.curvature, 1, order))

    def gaussian_square(self) -> float | None:
        return None if self.delta else pure_mean(self.epsilon) ** 2

    def concentration(self) -> float:
        if not isinstance(self.noise, GaussianDpEvent):
            return pure_concentration(self.epsilon)
        longest = max(1.0, self.outputs * max(self.corners) ** 2)
        return curves.perturbed_concentration(
            longest / self.noise.noise_multiplier**2, self.curvature, self.outputs, len(self.corners)
        )


@dataclass(frozen=True)
class ShuffledGaussianDpEvent(Event):
    """Gaussian noise on a model whose record sits in position j with probability shares[j] (§3).

    noise_multipliers[j] = σ/Δ_j. The permutation is secret, and new for this release.
    """

    shares: tuple[float, ...] = checked(
        lambda value: every(0, 1)(value) and abs(math.fsum(value) - 1) < 1e-9, "{} must add up to 1"
    )
    noise_multipliers: tuple[float, ...] = checked(every(1e-9, 1e300), "{} must be at least 1e-9")

    def divergence(self, order: float) -> float:
        return mixture_divergence(np.array(self.shares), np.array(self.noise_multipliers), order)

    def gaussian_square(self) -> float:
        return min(self.noise_multipliers) ** -2

    def concentration(self) -> float:
        # D_α is jointly quasi-convex: of mixtures with the same shares it is at most that of the worst position
        return 1 / (2 * min(self.noise_multipliers) ** 2)

    def check(self) -> None:
        super().check()
        if len(self.shares) != len(self.noise_multipliers):
            raise ValueError(
                f"event {type(self).__name__!r} cannot be charged: {len(self.shares)} shares need as many "
                "noise_multipliers"
            )


@dataclass(frozen=True)
class PoissonGaussianDpEvent(Event):
    """Gaussian noise on the sum over a Poisson-sampled mini-batch, `steps` times, each with a new mini-batch.

    noise_multiplier = σ/C, C the largest norm of one row's contribution to the sum. Neighbours are
    replace-one: the row's contribution g is replaced by any other, so that the worst pair is g, -g; or a unit of
    `rows` rows, each of them in a mini-batch or not by itself (§11.6).
    """

    sampling_probability: float = between(1e-15, 1)
    noise_multiplier: float = between(1e-9, 1e12)
    steps: int = whole()
    rows: int = whole(MOST_ROWS, default=1)

    def divergence(self, order: float) -> float:
        step = poisson_gaussian_divergence(self.sampling_probability, self.noise_multiplier, order, self.rows)
        return self.steps * step

    def gaussian_square(self) -> float | None:
        # on all rows in each step the steps are one Gaussian; on samples their curve is none of a Gaussian
        moved = 2 * self.rows / self.noise_multiplier
        return self.steps * moved**2 if self.sampling_probability == 1 else None

    def concentration(self) -> float | None:
        square = self.gaussian_square()
        return None if square is None else square / 2


@dataclass(frozen=True)
class ExponentialMechanismDpEvent(Event):
    """A selection whose privacy loss lies in an interval of length ε (bounded range)."""

    epsilon: float = between(MIN_EPSILON, MAX_EPSILON)

    def divergence(self, order: float) -> float:
        return min(pure_divergence(self.epsilon, order), curves.range_divergence(self.epsilon, order))

    def gaussian_square(self) -> float:
        return pure_mean(self.epsilon / 2) ** 2

    def concentration(self) -> float:
        return curves.range_concentration(self.epsilon)
