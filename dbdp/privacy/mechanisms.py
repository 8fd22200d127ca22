"""Mechanisms: exact integer noise on a grid, from the operating system's entropy.

privacy.md §2(ii). The model is rounded to a grid gℤ, which moves it by at most (g/2)√d, and integer
noise times g is added: nothing that decides privacy is computed in floating point.
Shapes: a model is (d,) float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from dbdp.privacy.accounting import (
    EpsilonDeltaDpEvent,
    GaussianDpEvent,
    Release,
    check_epsilon_delta,
    gaussian_noise_multiplier,
)
from dbdp.privacy.samplers import Entropy, discrete_gaussian, discrete_laplace

ROOM = 1 + 1e-12  # every noise scale is larger by this factor than floating point computed it
LEAST_SENSITIVITY = 1e-200
_GRID_BITS = 24  # grid = 2⁻²⁴ of the finest scale: the rounding of the model adds 6e-8 to the sensitivity


class Mechanism(Protocol):
    """What every mechanism offers: calibrated from public facts, applied once."""

    name: ClassVar[str]

    @property
    def noise_scale(self) -> float:
        """The noise's scale per coordinate, in the model's units."""

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity that the noise covers, with the rounding to the grid."""

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""

    def release(self, model: np.ndarray) -> np.ndarray:
        """Return the noisy model."""


@dataclass(frozen=True)
class DiscreteGaussian:
    """Independent discrete Gaussian noise of standard deviation `steps` × `grid` for each coordinate.

    Proof (privacy.md §2(ii)). For neighbours the rounded models differ by s ∈ (gℤ)^d with
    ‖s‖ ≤ Δ' = Δ + g√d. For one coordinate, completing the square,
    e^{(α-1)D_α} = e^{α(α-1)s²/2σ²}·Σ_x e^{-(x-αs)²/2σ²} / Σ_x e^{-x²/2σ²}, and the quotient is ≤ 1 by
    Poisson summation; D_α adds up over independent coordinates: D_α ≤ αΔ'²/2σ². Then the tight
    conversion from zCDP gives (ε, δ).
    """

    epsilon: float
    delta: float
    sensitivity: float
    grid: float
    steps: int
    name: ClassVar[str] = "discrete_gaussian"

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: float, dimension: int) -> "DiscreteGaussian":
        """Return the mechanism with the least noise that is (ε, δ)-DP for models within `sensitivity`.

        Raises
        ------
        ValueError
            If δ = 0: no Gaussian is (ε, 0)-DP.
        """
        check_epsilon_delta(epsilon, delta)
        if delta == 0:
            raise ValueError(
                "delta = 0 with Gaussian noise gives no guarantee; give a delta > 0 or use mechanism 'discrete_laplace'"
            )
        multiplier = gaussian_noise_multiplier(epsilon, delta)
        grid, covered = _grid(sensitivity, dimension, multiplier)
        return cls(epsilon, delta, covered, grid, math.ceil(covered * multiplier * ROOM / grid))

    @property
    def noise_scale(self) -> float:
        """Standard deviation per coordinate (of the continuous Gaussian of the same parameter)."""
        return self.steps * self.grid

    @property
    def guarantee(self) -> Release:
        event = GaussianDpEvent(self.noise_scale / self.sensitivity / ROOM)
        return Release(event, self.epsilon, self.delta)

    def release(self, model: np.ndarray) -> np.ndarray:
        """Return the noisy model; see `Mechanism`."""
        entropy = Entropy()
        return _on_grid(model, self.grid, lambda: discrete_gaussian(self.steps, entropy))


@dataclass(frozen=True)
class DiscreteLaplace:
    """Independent discrete Laplace noise of scale `steps` × `grid` for each coordinate: exactly ε-DP.

    Proof (privacy.md §2(ii)). P(k) ∝ e^{-|k|/t}, so a shift by s changes the log of the joint
    density by at most ‖s‖₁/(tg) ≤ √d Δ'/(tg) ≤ ε, with Δ' = Δ + g√d.
    """

    epsilon: float
    sensitivity: float
    grid: float
    steps: int
    name: ClassVar[str] = "discrete_laplace"

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: float, dimension: int) -> "DiscreteLaplace":
        """Return the mechanism with the least noise that is ε-DP for models within `sensitivity`.

        `delta` may be anything in [0, 1); none of it is used.
        """
        check_epsilon_delta(epsilon, delta)
        multiplier = math.sqrt(dimension) / epsilon
        grid, covered = _grid(sensitivity, dimension, multiplier)
        return cls(epsilon, covered, grid, math.ceil(covered * multiplier * ROOM / grid))

    @property
    def noise_scale(self) -> float:
        """Scale per coordinate, Δ₁/ε (of the continuous Laplace of the same parameter)."""
        return self.steps * self.grid

    @property
    def guarantee(self) -> Release:
        return Release(EpsilonDeltaDpEvent(self.epsilon, 0.0), self.epsilon, 0.0)

    def release(self, model: np.ndarray) -> np.ndarray:
        """Return the noisy model; see `Mechanism`."""
        entropy = Entropy()
        return _on_grid(model, self.grid, lambda: discrete_laplace(self.steps, entropy))


MECHANISMS: dict[str, type[DiscreteGaussian] | type[DiscreteLaplace]] = {
    DiscreteGaussian.name: DiscreteGaussian,
    DiscreteLaplace.name: DiscreteLaplace,
}


def mechanism_named(name: str | None, *, delta: float) -> type[DiscreteGaussian] | type[DiscreteLaplace]:
    """Return the mechanism of that name; without one, the Gaussian when there is a δ to spend."""
    if name is None:
        return DiscreteGaussian if delta > 0 else DiscreteLaplace
    if name not in MECHANISMS:
        raise ValueError(f"mechanism {name!r} is unknown; choose one of {', '.join(MECHANISMS)}")
    return MECHANISMS[name]


def _grid(sensitivity: float, dimension: int, multiplier: float) -> tuple[float, float]:
    """Return a power of two g, and Δ' = Δ + g√d rounded up; g is far below Δ/√d and below the noise."""
    if not LEAST_SENSITIVITY <= sensitivity < math.inf:
        raise ValueError(
            f"sensitivity = {sensitivity:g} must be finite and at least {LEAST_SENSITIVITY:g}, since smaller numbers "
            "lose their precision; choose larger steps, or less regularisation"
        )
    root = math.sqrt(dimension)
    finest = sensitivity / root * min(1.0, multiplier)
    grid = 2.0 ** (math.floor(math.log2(finest)) - _GRID_BITS)
    return grid, (sensitivity + grid * root) * ROOM


def _on_grid(model: np.ndarray, grid: float, noise: Callable[[], int]) -> np.ndarray:
    """Round the model to the grid, add integer noise, and only then go back to floating point."""
    return np.array([float((round(value / grid) + noise()) * grid) for value in model.tolist()])
