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
_LEAST_VARIATION = 2.0**-250  # beside it 2⁻²⁵⁶ is nothing
_ROOM = 1 - 1e-6  # 5η is below 1e-17: nothing beside a millionth of the least ε


@dataclass(frozen=True)
class ExponentialMechanism:
    """Choose the candidate of least loss: candidate i with probability ∝ exp(-ε losses_i / 2s), s the sensitivity.

    Proof. Replacing one record moves every loss, as the float it is given as, by at most s (McSherry &
    Talwar 2007), so the privacy loss lies in an interval of length ε that holds 0: pure ε, and ε²/8-zCDP
    (§13). Integer weights ⌈2^p e^max(-K, ·)⌉, with exponents relative to the largest, change each
    probability by a factor within (1 ± η)/(1 ∓ η), η = 2^(K/ln 2 - p) + the error of exp: pure ε + 5η
    (§14.6). The exponents are taken at ε(1 - 10⁻⁶), which pays for that.

    Attributes
    ----------
    epsilon : float
        Of one selection.
    sensitivity : float
        Of every loss when one record is replaced, with the rounding of the sum that it is.
    """

    epsilon: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_epsilon_delta(self.epsilon, 0.0)
        _check_sensitivity(self.sensitivity)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, 0) of one selection."""
        return Release(ExponentialMechanismDpEvent(self.epsilon), self.epsilon, 0.0)

    def choose(self, losses: Sequence[float]) -> int:
        """Return the number of a candidate, given the loss of each, from 0."""
        weights = self.weights(losses)
        drawn = Entropy().below(sum(weights))
        for candidate, weight in enumerate(weights):
            if drawn < weight:
                return candidate
            drawn -= weight
        raise AssertionError("a number below the sum lies below one of the partial sums")

    def choose_several(self, losses: Sequence[float], count: int) -> list[int]:
        """Return the numbers of `count` different candidates, one after the other; each is one selection.

        Which candidates are left is known from the earlier selections, so the selections compose.
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
            return [_whole(value.mid().ceil()) for value in scaled]


@dataclass(frozen=True)
class AboveThreshold:
    """Find the first of a row of values that is above a threshold, whatever their number: pure ε₁ + 2ε₂.

    Laplace noise of scale Δ/ε₁ on the threshold, once, and of Δ/ε₂ on each value, on a grid (§9.2).
    Proof. On the grid the values of neighbours differ by at most D = ⌈Δ/g⌉ steps. Given the threshold's
    noise z, P(index = k | z) = Π_{i<k} P(v_i + ν_i < t + z)·P(v_k + ν_k ≥ t + z). Take z + D for the
    neighbour: v'_i ≤ v_i + D, so no factor with i < k falls; t + z - v_k moves by at most 2D, which costs
    the last factor e^{2ε₂}; the weight of z costs e^{ε₁}. Sum over z; for None the last factor is not
    there. ∎ The discrete Laplace noise has whole scales s ≥ D/ε, and e^{-|k|/s} is exact. The version with
    Gaussian noise that DP-BLSGD's Theorem 3 charges with αρ is not used: that theorem is false (§9.1).

    Attributes
    ----------
    threshold_epsilon, query_epsilon : float
        ε₁ and ε₂.
    sensitivity : float
        Of every value when one record is replaced, with the rounding of the sum that it is; where the values come from
        a model that moves with the record, with that movement (§11.8).
    """

    threshold_epsilon: float
    query_epsilon: float
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
        """What values are rounded down to multiples of, far below the noise."""
        return grid_for(self.sensitivity, 1, 1 / max(self.threshold_epsilon, self.query_epsilon))

    def first_above(self, values: Iterable[float], threshold: float) -> int | None:
        """Return the index of the first noisy value at or above the noisy threshold, or None if there is none.

        Values after that one are not asked for.
        """
        grid, entropy = self.grid, Entropy()
        noise = self.steps(self.query_epsilon)
        noisy = _on_grid(threshold, grid) + discrete_laplace(self.steps(self.threshold_epsilon), entropy)
        for index, value in enumerate(values):
            if _on_grid(value, grid) + discrete_laplace(noise, entropy) >= noisy:
                return index
        return None

    def steps(self, epsilon: float) -> int:
        """Return the noise's scale for one of the two ε, in steps of the grid, rounded up."""
        moved = math.ceil(Fraction(self.sensitivity) / Fraction(self.grid))
        return math.ceil(moved / Fraction(epsilon) * Fraction(ROOM))


@dataclass(frozen=True)
class Repetitions:
    """The secret, random number of runs: geometric (shape 1) or Poisson (shape ∞), cut off at a public cap.

    Every training makes `cap` runs, so that its time tells nothing of the number that counts.

    Attributes
    ----------
    total_variation : float
        How far the law of the number is from that without the cap.
    tails : tuple[int, ...]
        P(K > r) for r = 0, …, cap - 1, in units of 2⁻²⁵⁶.
    """

    mean: float
    shape: float
    total_variation: float
    tails: tuple[int, ...]

    @classmethod
    def of(cls, *, mean: float, shape: float, total_variation: float) -> "Repetitions":
        """Return repetitions with the least cap beyond which at most `total_variation` lies.

        Raises
        ------
        ValueError
            If the mean is out of range, or the total variation is below what 256 bits can tell.
        """
        if not 1 <= mean <= 1000:
            raise ValueError(f"repetitions = {mean} must be between 1 and 1000 on average")
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

        P(K > r) falls in r, so it is how many of them are above u; to count them takes always the same time.
        """
        number = Entropy().below(_ONE)
        return sum(number < tail for tail in self.tails)


def _tails(mean: float, shape: float, least: int) -> list[int]:
    """Return P(K > 0), P(K > 1), … in units of 2⁻²⁵⁶, up to the first that is not above `least`.

    `Repetitions` counts their error, below two units, as beyond the cap.
    """
    from flint import arb

    from dbdp.privacy.noise.balls import precision

    poisson, tails = math.isinf(shape), []
    with precision(_TAIL_BITS):
        rate = arb(mean)
        chance = (-rate).exp() if poisson else arb(1)  # P(K = r), or P(K > r)
        tail = 1 - chance if poisson else chance
        while True:
            tails.append(_whole((tail * _ONE).mid().floor()))
            if tails[-1] <= least:
                return tails
            chance = chance * rate / len(tails) if poisson else chance * (1 - 1 / rate)
            tail = tail - chance if poisson else chance


def _whole(ball: Any) -> int:
    return int(ball.unique_fmpz())


def _check_sensitivity(sensitivity: float) -> None:
    if not LEAST_SENSITIVITY <= sensitivity < math.inf:
        raise ValueError(
            f"sensitivity = {sensitivity:g} must be finite and at least {LEAST_SENSITIVITY:g}; clip what is compared"
        )


def _finite(losses: Sequence[float]) -> list[float]:
    """Return the losses as floats. They are bounded by public facts, so that whether this holds tells nothing."""
    finite = [float(loss) for loss in losses]
    if not all(map(math.isfinite, finite)):
        raise ArithmeticError("internal error: a loss that is not finite is never compared")
    return finite


def _on_grid(value: float, grid: float) -> int:
    """Return a value in whole steps of the grid, rounded down: two that differ by Δ are within ⌈Δ/grid⌉ steps.

    ⌊x + n⌋ = ⌊x⌋ + n; to round halves to even instead would take 0.5 and 1.5 two steps apart.
    """
    (finite,) = _finite([value])
    return math.floor(Fraction(finite) / Fraction(grid))
