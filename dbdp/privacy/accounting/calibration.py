"""Calibration: the least noise at which Gaussian output perturbation is (ε, δ)-DP.

privacy.md §2, §3. Multipliers are σ ÷ the (largest) sensitivity. The hockey-stick divergences are
evaluated in ball arithmetic, so that the result is proved to suffice: the only margin for rounding is
the one in σ itself (§14.5).

No plan uses a sum by BLAS, whose order of addition depends on its number of threads and on the processor, so
that a plan is the same for all of them.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

_BITS = 128
_ROOM = 1e-9  # the target is δ(1 - 1e-9): a margin for a σ that is rounded afterwards (§14.5)
_PRECISION = 1e-9  # of a multiplier
_ROOT = math.sqrt(2)
_MOST = 1e150  # its square is still a float
_LARGEST_EXPONENT = 600.0  # e^600 is a float, and makes cancellation negligible
_RDP_ROOM = 1 + 1e-9  # Rényi bounds are evaluated in floating point
_LEVELS = 1024  # of a summary: the largest sensitivity in steps of a thousandth
_RATIO, _DEPTH = 1 + 2.0**-10, 2.0**-20  # of a compressed mixture: neighbouring sensitivities, smallest to largest
_IGNORED = 1e-6  # share of δ that stands for all positions far below the noise
_DOWN = 1 - 2.0**-50  # below 1 by more than three roundings


@dataclass(frozen=True)
class Mixture:
    """The positions of the replaced record: probabilities q_j, summing to 1, and sensitivities Δ_j; both (N,).

    privacy.md §3. The permutation must be secret, new for this release and independent of the
    values; then P(slot in mini-batch j) = q_j for every slot.
    """

    shares: np.ndarray
    sensitivities: np.ndarray

    @property
    def largest(self) -> float:
        """The largest sensitivity of a position."""
        return float(self.sensitivities.max())

    def multipliers(self, multiplier: float) -> np.ndarray:
        """Return σ/Δ_j of each position, for σ = multiplier × Δ_max; infinity where Δ_j is 0."""
        with np.errstate(divide="ignore", over="ignore"):
            return multiplier * (self.largest / self.sensitivities)

    def compressed(self) -> "Mixture":
        """Return a mixture of fewer positions, each sensitivity rounded up by a factor of at most _RATIO.

        The least noise grows by at most that factor, as it is linear in the sensitivities. Sensitivities below
        _DEPTH of the largest are replaced by the largest of them.
        """
        ratios = np.maximum(self.sensitivities / self.largest, _DEPTH)
        return self._grouped((np.log(ratios) / math.log(_RATIO)).astype(int))

    def summary(self) -> "Mixture":
        """Return a mixture of at most _LEVELS positions, with each sensitivity rounded up: it never costs less."""
        return self._grouped(np.ceil(self.sensitivities * (_LEVELS / self.largest)).clip(1, _LEVELS))

    def _grouped(self, keys: np.ndarray) -> "Mixture":
        """Return the mixture with the positions of each key merged, if there are many."""
        if len(self.shares) <= _LEVELS:
            return self
        levels, group = np.unique(keys, return_inverse=True)
        highest = np.zeros(len(levels))
        np.maximum.at(highest, group, self.sensitivities)
        return Mixture(np.bincount(group, self.shares), highest)

    def plus(self, margin: float) -> "Mixture":
        """Return the mixture with the same margin on every sensitivity (§14)."""
        return Mixture(self.shares, self.sensitivities + margin)


@lru_cache(maxsize=256)  # of two numbers, and of nothing that changes: a plan asks for the same ones several times
def analytic_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the least σ/Δ at which a Gaussian is (ε, δ)-DP (Balle & Wang 2018; privacy.md §2).

    The largest privacy loss of N(0, σ²) against N(Δ, σ²) beyond ε is
    Φ(Δ/2σ - εσ/Δ) - e^ε Φ(-Δ/2σ - εσ/Δ) ≤ δ, for every shift of norm ≤ Δ; it falls in σ.
    """
    target = delta * (1 - _ROOM)
    near = _estimated_multiplier(epsilon, target)
    return least_multiplier(lambda multiplier: _upper(_hockey_stick(epsilon, multiplier)) <= target, near=near)


def _estimated_multiplier(epsilon: float, delta: float) -> float | None:
    """Return about the least multiplier, or None where floats do not reach.

    It is rounded up to 26 bits, so that it is the same where the last bits of erfc and exp differ.
    """

    def suffices(multiplier: float) -> bool:
        near, far = epsilon * multiplier - 0.5 / multiplier, epsilon * multiplier + 0.5 / multiplier
        return math.erfc(near / math.sqrt(2)) - math.exp(epsilon) * math.erfc(far / math.sqrt(2)) <= 2 * delta

    try:
        fraction, exponent = math.frexp(least_multiplier(suffices))
    except (OverflowError, ZeroDivisionError, ValueError):
        return None
    return math.ldexp(math.ceil(fraction * 2**26), exponent - 26)


def hockey_stick_multiplier(epsilon: float, delta: float, mixture: Mixture) -> float:
    """Return the least σ/Δ_max at which δ(ε) = Σ_j q_j δ_Gauss(ε; Δ_j/σ) ≤ δ (privacy.md §3).

    Proof. Couple the same permutation in both worlds. (p, q) ↦ (p - e^ε q)₊ is jointly convex, so the
    hockey-stick divergence of the two mixtures is at most the mean of those of the pairs
    N(w_π, σ²), N(w'_π, σ²) with ‖w_π - w'_π‖ ≤ Δ_j where the record sits in mini-batch j, and
    P(record in j) = q_j.
    """
    compressed, target = mixture.compressed(), delta * (1 - _ROOM)
    ignored = max(target * (1 - target) * _IGNORED, math.ulp(0.0))
    harmless = analytic_noise_multiplier(epsilon, ignored)
    near = least_multiplier(lambda each: _estimated_delta(epsilon, each, compressed, harmless) + ignored <= target)
    return least_multiplier(
        lambda each: mixture_delta(epsilon, each, compressed, harmless=harmless) + ignored <= target, near=near
    )


def mixture_delta(epsilon: float, multiplier: float, mixture: Mixture, *, harmless: float) -> float:
    """Return an upper bound on Σ_j q_j δ_Gauss(ε; Δ_j/σ) for σ = multiplier × Δ_max.

    Without the positions whose own multiplier σ/Δ_j is at least `harmless`.
    """
    from flint import arb  # as in _hockey_stick

    total = arb(0)
    for share, each in _counted(mixture, multiplier, harmless):
        total += share * _hockey_stick(epsilon, each)
    return _upper(total) / _DOWN  # the shares were rounded


def _estimated_delta(epsilon: float, multiplier: float, mixture: Mixture, harmless: float) -> float:
    """Return an estimate of `mixture_delta`, fast: the search in balls begins near its result."""
    grown, total = math.exp(min(epsilon, 700.0)), 0.0
    for share, each in _counted(mixture, multiplier, harmless):
        near, far = (epsilon * each - 0.5 / each) / _ROOT, (epsilon * each + 0.5 / each) / _ROOT
        total += share * (math.erfc(near) - grown * math.erfc(far)) / 2
    return total


def _counted(mixture: Mixture, multiplier: float, harmless: float) -> Iterator[tuple[float, float]]:
    """Return share and σ/Δ_j, rounded down, of the positions where that is below `harmless`."""
    multipliers = mixture.multipliers(multiplier) * _DOWN
    counted = multipliers < harmless
    return zip(mixture.shares[counted].tolist(), multipliers[counted].tolist(), strict=True)


def too_small_multiplier(epsilon: float, delta: float, mixture: Mixture) -> float:
    """Return a lower bound on the sufficient σ/Δ_max, for the choice of a grid.

    Proof. Positions at least as sensitive as the selected one have a share of min(1, 4δ), so that
    δ_Gauss(ε; Δ_j/σ) ≤ max(δ, 1/4) there.
    """
    falling = np.argsort(-mixture.sensitivities)
    reached = np.searchsorted(np.cumsum(mixture.shares[falling]), min(1.0, 4 * delta))
    sensitivity = mixture.sensitivities[falling[min(int(reached), len(falling) - 1)]]
    return float(sensitivity / mixture.largest) * analytic_noise_multiplier(epsilon, max(delta, 0.25))


def renyi_multiplier(
    epsilon: float, delta: float, mixture: Mixture, conversion: Callable[[float, float], float]
) -> float:
    """Return the least σ/Δ_max whose Rényi curve converts to (ε, δ) (Chen, Lee & Kifer 2019, Proposition 3).

    ε(α) = (1/(α-1)) ln Σ_j q_j exp(α(α-1)Δ_j²/2σ²): the same coupling, with (p, q) ↦ p^α q^(1-α)
    jointly convex; then ε(α) + conversion(α, δ) at the best order.
    """
    compressed = mixture.compressed()

    def suffices(multiplier: float) -> bool:
        multipliers = compressed.multipliers(multiplier)
        return _least_epsilon(compressed.shares, multipliers, lambda order: conversion(order, delta)) <= epsilon

    return least_multiplier(suffices) * _RDP_ROOM


def mixture_divergence(shares: np.ndarray, multipliers: np.ndarray, order: float) -> float:
    """Return (1/(α-1)) ln Σ_j q_j exp(α(α-1)/2m_j²), without overflow, and without cancellation near 0."""
    exponents = order * (order - 1) / 2 * (1 / np.asarray(multipliers)) ** 2
    largest = float(exponents.max())
    if largest < _LARGEST_EXPONENT:
        return math.log1p(float(np.sum(shares * np.expm1(exponents)))) / (order - 1)
    return (largest + math.log(float(np.sum(shares * np.exp(exponents - largest))))) / (order - 1)


def paper_conversion(order: float, delta: float) -> float:
    """Return ln(1/δ)/(α - 1), the conversion from Rényi to (ε, δ) of the RSGD-AR paper (Mironov 2017)."""
    return -math.log(delta) / (order - 1)


def _least_epsilon(shares: np.ndarray, multipliers: np.ndarray, kappa: Callable[[float], float]) -> float:
    """Minimise ε(α) + κ(α) by golden section on ln(α - 1); any order is sound."""

    def epsilon_at(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        return mixture_divergence(shares, multipliers, order) + kappa(order)

    low, high, golden = -12.0, 30.0, (math.sqrt(5) - 1) / 2
    inner = [high - golden * (high - low), low + golden * (high - low)]
    values = [epsilon_at(point) for point in inner]
    for _ in range(60):
        if values[0] <= values[1]:
            high, inner, values = inner[1], [inner[1] - golden * (inner[1] - low), inner[0]], [0.0, values[0]]
            values[0] = epsilon_at(inner[0])
        else:
            low, inner, values = inner[0], [inner[1], inner[0] + golden * (high - inner[0])], [values[1], 0.0]
            values[1] = epsilon_at(inner[1])
    return min(values)


def least_multiplier(suffices: Callable[[float], bool], *, near: float | None = None) -> float:
    """Return the least multiplier that suffices, to a relative _PRECISION from above; larger ones must suffice too.

    An estimate `near` the result shortens the search.
    """
    first = 4.0 if near is None else 1 + _PRECISION
    low, high, factor = (near or 1.0) / first, (near or 1.0) * first, first
    while not suffices(high):
        factor = min(factor**4, 256.0)
        low, high = high, high * factor
        if high > _MOST:
            raise ValueError(
                f"no noise up to {_MOST:g} times the sensitivity suffices; choose a larger epsilon or delta"
            )
    factor = first
    while suffices(low):
        factor = min(factor**4, 256.0)
        low, high = low / factor, low
    while high / low > 1 + _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _hockey_stick(epsilon: float, multiplier: float) -> Any:
    """Return a ball around Φ(-a) - e^ε Φ(-b), a = εm - 1/2m and b = εm + 1/2m, for one Gaussian."""
    from flint import arb  # imported when first needed: a server that only predicts does not need it

    from dbdp.privacy.noise.balls import precision

    with precision(_BITS):
        m, e = arb(multiplier), arb(epsilon)
        root = arb(2).sqrt()
        near, far = (e * m - 1 / (2 * m)) / root, (e * m + 1 / (2 * m)) / root
        return (near.erfc() - e.exp() * far.erfc()) / 2


def _upper(ball: Any) -> float:
    """Return a float at or above every number of a ball; infinity if it is not finite."""
    upper = float(ball.upper()) if ball.is_finite() else math.inf
    return math.nextafter(upper, math.inf)
