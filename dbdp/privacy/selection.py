"""Private selection in integers: the exponential mechanism, the first value above a threshold, random repetitions.

privacy.md §6, §9, §14.6. Entropy is the operating system's.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dbdp.privacy.accounting.events import (
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    Release,
    check_epsilon_delta,
)
from dbdp.privacy.mechanisms import LEAST_SENSITIVITY, ROOM, grid_for
from dbdp.privacy.noise.samplers import Entropy, discrete_laplace

_DEEPEST = 64  # K: exponents are cut off at -K, where e^-K is 1e-28
_WEIGHT_BITS = 160  # p ≥ K/ln 2 + 60 (§14.6)
_ONE = 1 << 256
_TAIL_BITS = 512  # of the tails: a hundred thousand steps lose twenty of them
_LEAST_VARIATION = 2.0**-250  # 2⁻²⁵⁶ is negligible beside it
_ROOM = 1 - 1e-6  # 5η is below 1e-17, far below a millionth of the least ε


@dataclass(frozen=True)
class ExponentialMechanism:
    """Choose the candidate of least loss: candidate i with probability ∝ exp(-ε losses_i / 2s), s the sensitivity.

    Proof. Replacing one record moves every loss, as a float, by at most s (McSherry &
    Talwar 2007), so the privacy loss lies in an interval of length ε that holds 0: pure ε, and ε²/8-zCDP
    (§13). Integer weights ⌈2^p e^max(-K, ·)⌉, with exponents relative to the largest, change each
    probability by a factor within (1 ± η)/(1 ∓ η), η = 2^(K/ln 2 - p) + the error of exp: pure ε + 5η
    (§14.6). The exponents use ε(1 - 10⁻⁶), which covers that.
    """

    epsilon: float  # ε of one selection
    sensitivity: float = 1.0  # of every loss when one record is replaced, including the rounding of its sum

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_epsilon_delta(self.epsilon, 0.0)
        _check_sensitivity(self.sensitivity)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, 0) of one selection."""
        return Release(ExponentialMechanismDpEvent(self.epsilon), self.epsilon, 0.0)

    def choose(self, losses: Sequence[float]) -> int:
        """Return the index of a candidate, selected by the losses of all."""
        weights = self.weights(losses)
        drawn = Entropy().below(sum(weights))
        for candidate, weight in enumerate(weights):
            if drawn < weight:
                return candidate
            drawn -= weight
        raise AssertionError("a number below the sum lies below one of the partial sums")

    def choose_several(self, losses: Sequence[float], count: int) -> list[int]:
        """Return the indices of `count` different candidates, by one selection each.

        The remaining candidates follow from the earlier selections, so the selections compose.
        """
        if not 1 <= count <= len(losses):
            raise ValueError(f"count = {count} must be between 1 and the {len(losses)} candidates; choose fewer")
        left, chosen = list(range(len(losses))), []
        for _ in range(count):
            chosen.append(left.pop(self.choose([losses[candidate] for candidate in left])))
        return chosen

    def weights(self, losses: Sequence[float]) -> list[int]:
        """Return the integer weights of the candidates."""
        from flint import arb  # only a training that selects needs it

        from dbdp.privacy.noise.balls import precision

        finite = _finite(losses)
        least = min(finite)
        with precision(_WEIGHT_BITS + 128):
            scale = arb(self.epsilon * _ROOM) / 2 / arb(self.sensitivity)
            exponents = [scale * (arb(least) - arb(loss)) for loss in finite]
            cut = [exponent if exponent > -_DEEPEST else arb(-_DEEPEST) for exponent in exponents]
            scaled = [exponent.exp() * arb(2) ** _WEIGHT_BITS for exponent in cut]
            return [_integer(value.mid().ceil()) for value in scaled]


@dataclass(frozen=True)
class AboveThreshold:
    """Select the first value above a threshold: pure ε₁ + 2ε₂, for any number of values.

    Laplace noise of scale Δ/ε₁ on the threshold, once, and of Δ/ε₂ on each value, on a grid (§9.2).
    Proof. On the grid the values of neighbours differ by at most D = ⌈Δ/g⌉ steps. Given the threshold's
    noise z, P(index = k | z) = Π_{i<k} P(v_i + ν_i < t + z)·P(v_k + ν_k ≥ t + z). Take z + D for the
    neighbour: v'_i ≤ v_i + D, so no factor with i < k falls; t + z - v_k moves by at most 2D, which costs
    the last factor e^{2ε₂}; the weight of z costs e^{ε₁}. Sum over z; for None the last factor is not
    there. ∎ The discrete Laplace noise has integer scales s ≥ D/ε, and e^{-|k|/s} is exact. The version with
    Gaussian noise that DP-BLSGD's Theorem 3 charges with αρ is not used: that theorem is false (§9.1).
    """

    # threshold_epsilon, query_epsilon: ε₁ and ε₂.
    threshold_epsilon: float
    query_epsilon: float
    # Of every value when one record is replaced, including the rounding of its sum and, if the values come from a model
    # that depends on the record, the movement of that model (§11.8).
    sensitivity: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_epsilon_delta(self.threshold_epsilon, 0.0)
        check_epsilon_delta(self.query_epsilon, 0.0)
        _check_sensitivity(self.sensitivity)

    @property
    def epsilon(self) -> float:
        """ε₁ + 2ε₂."""
        return self.threshold_epsilon + 2 * self.query_epsilon

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, 0) of one search."""
        return Release(EpsilonDeltaDpEvent(self.epsilon, 0.0), self.epsilon, 0.0)

    @property
    def grid(self) -> float:
        """The grid to which values are rounded down, far below the noise."""
        return grid_for(self.sensitivity, 1, 1 / max(self.threshold_epsilon, self.query_epsilon))

    def first_above(self, values: Iterable[float], threshold: float) -> int | None:
        """Return the index of the first noisy value at or above the noisy threshold, or None if there is none.

        Later values are not computed.
        """
        grid, entropy = self.grid, Entropy()
        noise = self.steps(self.query_epsilon)
        noisy = _on_grid(threshold, grid) + discrete_laplace(self.steps(self.threshold_epsilon), entropy)
        for index, value in enumerate(values):
            if _on_grid(value, grid) + discrete_laplace(noise, entropy) >= noisy:
                return index
        return None

    def steps(self, epsilon: float) -> int:
        """Return the scale of the noise for one of the two ε, in steps of the grid, rounded up."""
        moved = math.ceil(Fraction(self.sensitivity) / Fraction(self.grid))
        return math.ceil(moved / Fraction(epsilon) * Fraction(ROOM))


@dataclass(frozen=True)
class Repetitions:
    """The law of a secret, random number of runs: geometric (shape 1) or Poisson (shape ∞), cut off at a public cap.

    Every training makes `cap` runs, so that its duration does not reveal the number that counts.
    """

    mean: float
    shape: float
    total_variation: float  # distance of the law from that without the cap
    tails: tuple[int, ...]  # P(K > r) for r = 0, …, cap - 1, in units of 2⁻²⁵⁶

    @classmethod
    def of(cls, *, mean: float, shape: float, total_variation: float) -> "Repetitions":
        """Return repetitions with the least cap that is exceeded with probability at most `total_variation`."""
        if not 1 <= mean <= 1000:
            raise ValueError(f"repetitions = {mean} on average must be between 1 and 1000; 3 to 10 suit most tunings")
        if not _LEAST_VARIATION <= total_variation < 1:
            raise ValueError(
                f"repetitions cannot be cut off with probability {total_variation:g}, the least is "
                f"{_LEAST_VARIATION:g}; choose a smaller epsilon or a larger delta"
            )
        *tails, beyond = _tails(mean, shape, int(total_variation * _ONE) - 2)
        return cls(mean, shape, math.nextafter((beyond + 2) / _ONE, 1), tuple(tails))

    @property
    def cap(self) -> int:
        """The largest number of runs."""
        return len(self.tails)

    def draw(self) -> int:
        """Return a number of runs, at most `cap`: the least r with u ≥ P(K > r), for a uniform u of 256 bits.

        P(K > r) falls in r, so this is the number of them above u, which is counted in constant time.
        """
        number = Entropy().below(_ONE)
        return sum(number < tail for tail in self.tails)


def _tails(mean: float, shape: float, least: int) -> list[int]:
    """Return P(K > 0), P(K > 1), … in units of 2⁻²⁵⁶, up to the first that is not above `least`.

    `Repetitions` adds their error, below two units, to the probability beyond the cap.
    """
    from flint import arb

    from dbdp.privacy.noise.balls import precision

    poisson, tails = math.isinf(shape), []
    with precision(_TAIL_BITS):
        rate = arb(mean)
        chance = (-rate).exp() if poisson else arb(1)  # P(K = r), or P(K > r)
        tail = 1 - chance if poisson else chance
        while True:
            tails.append(_integer((tail * _ONE).mid().floor()))
            if tails[-1] <= least:
                return tails
            chance = chance * rate / len(tails) if poisson else chance * (1 - 1 / rate)
            tail = tail - chance if poisson else chance


def _integer(ball: Any) -> int:
    return int(ball.unique_fmpz())


def _check_sensitivity(sensitivity: float) -> None:
    if not LEAST_SENSITIVITY <= sensitivity < math.inf:
        raise ValueError(
            f"sensitivity = {sensitivity:g} must be finite and at least {LEAST_SENSITIVITY:g}; clip the compared values"
        )


def _finite(losses: Sequence[float]) -> list[float]:
    """Return the losses as floats; they are bounded by public facts, so that this check depends on no row."""
    finite = [float(loss) for loss in losses]
    if not all(map(math.isfinite, finite)):
        raise ArithmeticError("internal error: a loss is not finite")
    return finite


def _on_grid(value: float, grid: float) -> int:
    """Return a value in steps of the grid, rounded down: two that differ by Δ are within ⌈Δ/grid⌉ steps.

    ⌊x + n⌋ = ⌊x⌋ + n; rounding halves to even would move 0.5 and 1.5 two steps apart.
    """
    (finite,) = _finite([value])
    return math.floor(Fraction(finite) / Fraction(grid))
