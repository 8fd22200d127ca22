"""Mechanisms: exact integer noise on a grid, from the operating system's entropy.

privacy.md §2(ii). The model is rounded to a grid gℤ, which moves it by at most (g/2)√d, and integer
noise times g is added: the privacy guarantee does not depend on floating point.
Shapes: a model is (d,) float64.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol, Self

import numpy as np

from dbdp.checks import one_of
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import (
    EpsilonDeltaDpEvent,
    GaussianDpEvent,
    Release,
    SphericalLaplaceDpEvent,
    ZCDpEvent,
    check_epsilon_delta,
)
from dbdp.privacy.accounting.renyi import gaussian_noise_multiplier
from dbdp.privacy.noise import streams
from dbdp.privacy.noise.samplers import Entropy, discrete_gaussian, discrete_laplace

ROOM = 1 + 1e-12  # every noise scale is larger by this factor than floating point computed it
LEAST_SENSITIVITY = 1e-200
_GRID_BITS = 24  # grid = 2⁻²⁴ of the finest scale: the rounding of the model adds 6e-8 to the sensitivity


class Mechanism(Protocol):
    """The interface of a mechanism, which is calibrated from public facts and applied once."""

    name: ClassVar[str]

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: float, dimension: int) -> Self:
        """Return the mechanism with the least noise that is (ε, δ)-DP for models within `sensitivity`."""

    @property
    def noise_scale(self) -> float:
        """The scale of the noise, in the model's units.

        For Gaussian noise it is the standard deviation of a coordinate, else the b of a density ∝ exp(-‖z‖/b).
        """

    def deviation(self, dimension: int) -> float:
        """Return the standard deviation of a coordinate of the noise, for models of that many."""

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity that the noise covers, including the rounding to the grid."""

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""

    def release(self, model: np.ndarray) -> np.ndarray:
        """Return the noisy model, shape (d,).

        Every coordinate must be finite: the iterates of training are bounded by public facts (privacy.md
        §14.2), so whether this holds depends on no row.
        """


@dataclass(frozen=True)
class _OnGrid(ABC):
    """Base of the mechanisms: the model rounded to `grid`, and integer noise of scale `steps`."""

    sensitivity: float
    grid: float
    steps: int

    @property
    def noise_scale(self) -> float:
        """The scale of the noise, see `Mechanism`."""
        return self.steps * self.grid

    def deviation(self, _dimension: int) -> float:
        """Return the standard deviation of a coordinate: the scale, of Gaussian noise."""
        return self.noise_scale

    def release(self, model: np.ndarray) -> np.ndarray:
        """Return the noisy model; see `Mechanism`."""
        if not np.isfinite(model).all():
            raise ArithmeticError("internal error: the model is not finite")
        rounded = [round(value / self.grid) for value in model.tolist()]
        noisy = (step + noise for step, noise in zip(rounded, self._noise(len(rounded)), strict=True))
        return np.array([float(step * self.grid) for step in noisy])  # floating point comes last

    @abstractmethod
    def _noise(self, count: int) -> list[int]:
        """Return the noise for `count` coordinates, in steps of the grid."""


@dataclass(frozen=True)
class Gaussian(_OnGrid):
    """Independent Gaussian noise of standard deviation `steps` × `grid`, exactly rounded to the grid.

    Proof (privacy.md §2(ii)). A model w on the grid has w + g·round(z/g) = round_g(w + z): the released
    model is a function of the ideal continuous mechanism's output, and inherits its guarantee. For
    neighbours the rounded models are within Δ' = Δ + g√d.
    """

    guarantee: Release
    name: ClassVar[str] = "gaussian"

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: float, dimension: int) -> Self:
        """Return the mechanism of the analytic Gaussian (Balle & Wang 2018); see `Mechanism`."""
        _check_delta(epsilon, delta)
        multiplier = analytic_noise_multiplier(epsilon, delta)
        grid = grid_for(sensitivity, dimension, multiplier)
        covered = covered_sensitivity(sensitivity, dimension, grid)
        guarantee = Release(GaussianDpEvent(multiplier), epsilon, delta)
        return cls.with_scale(
            sensitivity=covered, grid=grid, noise_scale=covered * multiplier * ROOM, guarantee=guarantee
        )

    @classmethod
    def with_scale(cls, *, sensitivity: float, grid: float, noise_scale: float, guarantee: Release) -> Self:
        """Return the mechanism whose standard deviation is `noise_scale`, rounded up to a multiple of the grid."""
        return cls(sensitivity, grid, _steps(noise_scale, grid), guarantee)

    def _noise(self, count: int) -> list[int]:
        return streams.vector("gaussian", self.steps, count)


@dataclass(frozen=True)
class SphericalLaplace(_OnGrid):
    """Noise with density ∝ exp(-‖z‖₂ε/Δ'), exactly rounded to the grid: exactly ε-DP.

    Its norm has the law Gamma(d, Δ'/ε), its direction is uniform on the sphere; b = Δ'/ε is `steps` × `grid`.
    Proof (privacy.md §2). A shift by s changes the log of the density by at most ‖s‖₂/b ≤ ε, and for
    neighbours the rounded models are within Δ' = Δ + g√d; w + g·round(z/g) = round_g(w + z). A ledger charges
    less than a pure ε: the curve in d dimensions (`curves.spherical_divergence`).
    """

    epsilon: float
    dimension: int
    name: ClassVar[str] = "spherical_laplace"

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: float, dimension: int) -> Self:
        """Return the mechanism that is ε-DP; `delta` may be anything in [0, 1), none of it is used."""
        check_epsilon_delta(epsilon, delta)
        grid = grid_for(sensitivity, dimension, math.sqrt(dimension + 1) / epsilon)  # that is σ/Δ of a coordinate
        covered = covered_sensitivity(sensitivity, dimension, grid)
        return cls(covered, grid, _steps(covered / epsilon * ROOM, grid), epsilon, dimension)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, 0)."""
        return Release(SphericalLaplaceDpEvent(self.epsilon, self.dimension), self.epsilon, 0.0)

    def deviation(self, dimension: int) -> float:
        """Return b√(d + 1): E‖z‖² = d(d + 1)b² of Gamma(d, b), in d coordinates alike."""
        return self.noise_scale * math.sqrt(dimension + 1)

    def _noise(self, count: int) -> list[int]:
        return streams.vector("spherical_laplace", self.steps, count)


@dataclass(frozen=True)
class DiscreteGaussian(_OnGrid):
    """Independent discrete Gaussian noise of standard deviation `steps` × `grid` for each coordinate.

    Proof (privacy.md §2(ii)). For neighbours the rounded models differ by s ∈ (gℤ)^d with
    ‖s‖ ≤ Δ' = Δ + g√d. For one coordinate, completing the square,
    e^{(α-1)D_α} = e^{α(α-1)s²/2σ²}·Σ_x e^{-(x-αs)²/2σ²} / Σ_x e^{-x²/2σ²}, and the quotient is ≤ 1 by
    Poisson summation; D_α adds up over independent coordinates: D_α ≤ αΔ'²/2σ². Then the tight
    conversion from zCDP gives (ε, δ); the analytic formula of the Gaussian does not hold.
    """

    epsilon: float
    delta: float
    name: ClassVar[str] = "discrete_gaussian"

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: float, dimension: int) -> Self:
        """Return the mechanism that is (ε, δ)-DP by zCDP; see `Mechanism`."""
        _check_delta(epsilon, delta)
        multiplier = gaussian_noise_multiplier(epsilon, delta)
        grid = grid_for(sensitivity, dimension, multiplier)
        covered = covered_sensitivity(sensitivity, dimension, grid)
        return cls(covered, grid, _steps(covered * multiplier * ROOM, grid), epsilon, delta)

    @property
    def guarantee(self) -> Release:
        """The ρ-zCDP event and the stand-alone (ε, δ)."""
        rho = (Fraction(self.sensitivity) / (self.steps * Fraction(self.grid))) ** 2 / 2
        return Release(ZCDpEvent(math.nextafter(float(rho), math.inf)), self.epsilon, self.delta)

    def _noise(self, count: int) -> list[int]:
        entropy = Entropy()
        return [discrete_gaussian(self.steps, entropy) for _ in range(count)]


@dataclass(frozen=True)
class DiscreteLaplace(_OnGrid):
    """Independent discrete Laplace noise of scale `steps` × `grid` for each coordinate: exactly ε-DP.

    Proof (privacy.md §2(ii)). P(k) ∝ e^{-|k|/t}, so a shift by s changes the log of the joint
    density by at most ‖s‖₁/(tg) ≤ √d Δ'/(tg) ≤ ε, with Δ' = Δ + g√d.
    """

    epsilon: float
    name: ClassVar[str] = "discrete_laplace"

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: float, dimension: int) -> Self:
        """Return the mechanism that is ε-DP; `delta` may be anything in [0, 1), none of it is used."""
        check_epsilon_delta(epsilon, delta)
        multiplier = math.sqrt(dimension) / epsilon
        grid = grid_for(sensitivity, dimension, multiplier)
        covered = covered_sensitivity(sensitivity, dimension, grid)
        return cls(covered, grid, _steps(covered * multiplier * ROOM, grid), epsilon)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, 0)."""
        return Release(EpsilonDeltaDpEvent(self.epsilon, 0.0), self.epsilon, 0.0)

    def deviation(self, _dimension: int) -> float:
        """Return √2·tg: the variance g²/(2 sinh²(1/2t)) of P(k) ∝ e^{-|k|/t} is just below 2t²g²."""
        return math.sqrt(2) * self.noise_scale

    def _noise(self, count: int) -> list[int]:
        entropy = Entropy()
        return [discrete_laplace(self.steps, entropy) for _ in range(count)]


MECHANISMS: dict[str, type[Mechanism]] = {
    Gaussian.name: Gaussian,
    SphericalLaplace.name: SphericalLaplace,
    DiscreteGaussian.name: DiscreteGaussian,
    DiscreteLaplace.name: DiscreteLaplace,
}


def mechanism_named(name: str | None, *, delta: float) -> type[Mechanism]:
    """Return the mechanism of that name; for None the Gaussian if δ > 0, else the spherical Laplace."""
    if name is None:
        return Gaussian if delta > 0 else SphericalLaplace
    return MECHANISMS[one_of("mechanism", name, MECHANISMS)]


def grid_for(sensitivity: float, dimension: int, multiplier: float) -> float:
    """Return the grid for noise of `multiplier` × `sensitivity` per coordinate.

    It is a power of two, far below Δ/√d (§14.4) and below the noise.
    """
    if not LEAST_SENSITIVITY <= sensitivity < math.inf:
        raise ValueError(
            f"sensitivity = {sensitivity:g} must be finite and at least {LEAST_SENSITIVITY:g}, since smaller numbers "
            "lose their precision; choose a larger step_size, or less regularisation"
        )
    finest = sensitivity / math.sqrt(dimension) * min(1.0, multiplier)
    return 2.0 ** (math.floor(math.log2(finest)) - _GRID_BITS)


def covered_sensitivity(sensitivity: float, dimension: int, grid: float) -> float:
    """Return Δ' = Δ + g√d, rounded up: the sensitivity of models that are rounded to the grid."""
    return (sensitivity + grid * math.sqrt(dimension)) * ROOM


def _check_delta(epsilon: float, delta: float) -> None:
    check_epsilon_delta(epsilon, delta)
    if delta == 0:
        raise ValueError(
            "delta = 0: Gaussian noise has no pure guarantee; give a delta > 0 or use mechanism 'spherical_laplace'"
        )


def _steps(noise_scale: float, grid: float) -> int:
    """Return a noise scale in steps of the grid, rounded up to an integer, as the samplers need it."""
    return math.ceil(Fraction(noise_scale) / Fraction(grid))
