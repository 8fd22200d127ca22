"""The costs of pure ε: the largest that any ε-DP mechanism can have, by each measure of §13."""

import math
from statistics import NormalDist

from dbdp import checks

MIN_EPSILON = 1e-9  # one unit of a charge
MAX_EPSILON = 1e6  # far beyond any useful guarantee; keeps α away from 1 and odometers within 64 bits


def check_epsilon_delta(epsilon: float, delta: float) -> None:
    """Raise ValueError unless MIN_EPSILON ≤ ε ≤ MAX_EPSILON and 0 ≤ δ < 1."""
    if not (checks.is_number(epsilon) and checks.is_number(delta)):
        raise ValueError(f"epsilon = {epsilon!r} and delta = {delta!r} must be numbers")
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ValueError(f"epsilon = {epsilon} must be positive, from {MIN_EPSILON:g} to {MAX_EPSILON:,.0f}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta = {delta} must be at least 0 and below 1")


def exceedance(delta: float, epsilon: float) -> float:
    """Return (1 + e^ε)δ, rounded up, or a number above 1 if that is above 1.

    A total variation of δ from an (ε, 0)-DP mechanism, in both worlds, adds this to its δ (§2).
    """
    return (delta + math.exp(min(epsilon + math.log(delta), 0.0))) * (1 + 1e-12) if delta > 0 else 0.0


def pure_mean(epsilon: float) -> float:
    """Return μ = 2Φ⁻¹(e^ε/(1+e^ε)), rounded up: pure ε is at least as private as N(μ, 1) against N(0, 1).

    So is every privacy loss in an interval of length 2ε, which a bounded range of 2ε is.
    Proof. Let a test have the powers p and q. With a loss in [t, t + 2ε] both p/q and (1-p)/(1-q) lie between e^t and
    e^(t+2ε): ln(p/(1-p)) - ln(q/(1-q)) ≤ 2ε. h(x) = Φ⁻¹(1/(1+e^-x)) is odd, and concave for x > 0: that is
    f(z) = (2Φ-1)φ - zΦ(1-Φ) ≥ 0 for z > 0, where f(0) = f(∞) = 0, f' = 2φ² - Φ(1-Φ), and f'' = φ(2Φ-1-4zφ) is first
    negative, then positive; f' > 0 at 0 and 0 at ∞, so that f rises, and then falls to 0. So h rises most around 0:
    Φ⁻¹(p) - Φ⁻¹(q) ≤ h(ε) - h(-ε) = μ, for every test. ∎
    """
    if epsilon > 600:  # Φ(-x) ≤ exp(-x²/2)/2 gives x ≤ √(2 ln((1+e^ε)/2)) ≤ √(2ε)
        return 2 * math.sqrt(2 * epsilon)
    return -2 * NormalDist().inv_cdf(1 / (1 + math.exp(epsilon))) * (1 + 1e-9) + 1e-15


def pure_concentration(epsilon: float) -> float:
    """Return the least ρ for which every ε-DP mechanism is ρ-zCDP: ε·tanh(ε/2) ≤ ε²/2 (privacy.md §13).

    Proof. (α-1)D_α ≤ g(α) = ln[cosh((α-½)ε)/cosh(ε/2)], with g(1) = 0 and g' = ε·tanh((2α-1)ε/2). tanh is
    concave on [0, ∞) and 0 at 0, so tanh(cx) ≤ c·tanh(x) for c ≥ 1: g' ≤ (2α-1)ε·tanh(ε/2), whose integral from
    1 is α(α-1)ε·tanh(ε/2). Randomised response has D_α → ε·tanh(ε/2) as α → 1.
    """
    return epsilon * math.tanh(epsilon / 2)


def pure_divergence(epsilon: float, order: float) -> float:
    """Return r(ε, α): the largest order-α Rényi divergence of an ε-DP mechanism (§13).

    (1/(α-1)) ln[(sinh αε - sinh (α-1)ε)/sinh ε] = (1/(α-1)) ln[cosh((α-1/2)ε)/cosh(ε/2)], attained by
    randomised response; at most min(ε, αε²/2).
    """
    exact = (_log_cosh((order - 0.5) * epsilon) - _log_cosh(epsilon / 2)) / (order - 1)
    return min(epsilon, order * epsilon**2 / 2, max(exact, 0.0) + 1e-15)


def _log_cosh(x: float) -> float:
    """Return ln cosh x for x ≥ 0 without overflow, and without cancellation near 0."""
    return math.log1p(2 * math.sinh(x / 2) ** 2) if x < 1 else x + math.log1p(math.exp(-2 * x)) - math.log(2)
