"""Advanced composition of releases with one ε, and the zCDP equivalent of an (ε, δ) guarantee.

privacy.md §2, §5, §13. Where charges are chosen adaptively, use a filter instead (`filters`).
"""

import math

from dbdp.privacy.accounting.events import Event, check_epsilon_delta
from dbdp.privacy.accounting.renyi import SLACK, best_order, conversion

_ROOM = 1 + 1e-12  # of closed forms in floating point
_LARGEST = 700.0  # e^700 is a float


def strong_epsilon(epsilon: float, count: int, slack: float) -> float:
    """Return kε(e^ε - 1) + √(2k ln(1/s)) ε: `count` releases of ε, each (ε, δ_i), are (that, Σδ_i + s)-DP.

    Dwork, Rothblum & Vadhan 2010. The releases may be chosen adaptively; ε and the count must be fixed
    before the first: with ε_i that depend on earlier outputs the statement is not sound as printed (§13).
    Proof. Without leaks each loss Z_i lies within ±ε, given the past, and its mean under P is a KL divergence,
    at most that of randomised response, ε tanh(ε/2) ≤ ε(e^ε - 1). Z_i minus its mean is a martingale difference in an
    interval of length 2ε: by Azuma, ΣZ_i exceeds its bound on the mean by √(2k ln(1/s)) ε with probability at
    most s, and where it does not, p ≤ e^ε' q. The leaks add their sum, as in the theorem of §13. ∎
    """
    _check_run(epsilon, count, slack)
    if epsilon > _LARGEST:
        return math.inf
    return (count * epsilon * math.expm1(epsilon) + math.sqrt(-2 * count * math.log(slack)) * epsilon) * _ROOM


def strong_share(epsilon: float, count: int, slack: float) -> float:
    """Return the largest ε₁ for which `count` releases have `strong_epsilon` at most ε, rounded down."""
    _check_run(epsilon, count, slack)
    low, high = 0.0, epsilon / math.sqrt(-2 * count * math.log(slack))
    while math.nextafter(low, high) < high:
        middle = low + (high - low) / 2
        if strong_epsilon(middle, count, slack) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest ρ whose tight conversion is (ε, δ), rounded down: ρ-zCDP is (ε, δ)-DP.

    Proof. D_α ≤ αρ, and αρ + κ(α) ≤ ε at the order α that allows the largest ρ (§2, §13); any order is
    sound, and δ(1 - 10⁻⁹) covers the rounding of κ (§14.5). At equal (ε, δ) this ρ is 1.1 to 2 times the
    one of ρ + 2√(ρ ln(1/δ)) = ε.

    Raise ValueError if ε or δ is out of range, δ is 0, or ε is too small for δ.
    """
    check_epsilon_delta(epsilon, delta)
    if delta == 0:
        raise ValueError("delta = 0: zCDP implies no pure guarantee; give a delta > 0")
    target = delta * (1 - 1e-9)
    order = best_order(epsilon, target)
    rho = (epsilon - conversion(order, target)) / order / _ROOM
    if rho <= 0:
        raise ValueError(f"epsilon = {epsilon:g} is too small for delta = {delta:g}; use a larger epsilon")
    return rho


def least_epsilon(event: Event, delta: float) -> float:
    """Return ε for which an event without leaks is (ε, δ)-DP: the least tight conversion on a grid of α."""
    orders = [1 + math.exp(step / 16) for step in range(-64, 192)]
    return min(event.divergence(order) + conversion(order, delta) for order in orders) * (1 + SLACK)


def _check_run(epsilon: float, count: int, slack: float) -> None:
    if not (0 < epsilon < math.inf and count >= 1 and 0 < slack < 1):
        raise ValueError(
            f"epsilon = {epsilon} must be positive, count = {count} at least 1, and slack = {slack} between 0 and 1"
        )
