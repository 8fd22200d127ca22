"""Private selection: the exponential mechanism in integers, and the number of runs of a random repetition.

privacy.md §6, §14.6. Entropy is the operating system's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dbdp.privacy.events import ExponentialMechanismDpEvent, Release
from dbdp.privacy.samplers import Entropy

_DEEPEST = 64  # K: exponents are cut off at -K, where e^-K is 1e-28
_WEIGHT_BITS = 160  # p ≥ K/ln 2 + 60 (§14.6)
_ONE = 1 << 256
_TAIL_BITS = 512  # of the tails: a hundred thousand steps lose twenty of them
_LEAST_VARIATION = 2.0**-250  # beside it 2⁻²⁵⁶ is nothing
_ROOM = 1 - 1e-6  # 5η is below 1e-17: nothing beside a millionth of the least ε


@dataclass(frozen=True)
class ExponentialMechanism:
    """Choose the candidate of fewest errors: candidate i with probability ∝ exp(-ε errors_i / 2).

    Proof. Replacing one record changes every count by at most 1 (McSherry & Talwar 2007), so the loss
    lies in an interval of length ε. Integer weights ⌈2^p e^max(-K, ·)⌉, with exponents relative to the
    largest, change each probability by a factor within (1 ± η)/(1 ∓ η), η = 2^(K/ln 2 - p) + the error
    of exp: pure ε + 5η (§14.6). The exponents are taken at ε(1 - 10⁻⁶), which pays for that.
    """

    epsilon: float

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, 0)."""
        return Release(ExponentialMechanismDpEvent(self.epsilon), self.epsilon, 0.0)

    def choose(self, errors: Sequence[int]) -> int:
        """Return the number of a candidate, given the errors of each, from 0."""
        weights = self.weights(errors)
        drawn = Entropy().below(sum(weights))
        for candidate, weight in enumerate(weights):
            if drawn < weight:
                return candidate
            drawn -= weight
        raise AssertionError("a number below the sum lies below one of the partial sums")

    def weights(self, errors: Sequence[int]) -> list[int]:
        """Return the integer weights of the candidates."""
        from flint import arb  # only a training that tunes needs it

        from dbdp.privacy.balls import precision

        fewest = min(errors)
        with precision(_WEIGHT_BITS + 128):
            scale = arb(self.epsilon * _ROOM) / 2
            exponents = [scale * -(count - fewest) for count in errors]
            cut = [exponent if exponent > -_DEEPEST else arb(-_DEEPEST) for exponent in exponents]
            scaled = [exponent.exp() * arb(2) ** _WEIGHT_BITS for exponent in cut]
            return [_whole(value.mid().ceil()) for value in scaled]


@dataclass(frozen=True)
class Repetitions:
    """The secret, random number of runs: geometric (shape 1) or Poisson (shape ∞), cut off at a public cap.

    Every training makes `cap` runs, so that its time tells nothing of the number that counts.

    Attributes
    ----------
    total_variation : how far the law of the number is from that without the cap
    tails : P(K > r) for r = 0, …, cap - 1, in units of 2⁻²⁵⁶
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

    from dbdp.privacy.balls import precision

    poisson, found = math.isinf(shape), []
    with precision(_TAIL_BITS):
        rate = arb(mean)
        chance = (-rate).exp() if poisson else arb(1)  # P(K = r), or P(K > r)
        tail = 1 - chance if poisson else chance
        while True:
            found.append(_whole((tail * _ONE).mid().floor()))
            if found[-1] <= least:
                return found
            chance = chance * rate / len(found) if poisson else chance * (1 - 1 / rate)
            tail = tail - chance if poisson else chance


def _whole(ball: Any) -> int:
    return int(ball.unique_fmpz())
