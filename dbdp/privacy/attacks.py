"""What a guarantee allows an attacker: the power of every test for a record, by its rate of false alarms.

docs/privacy.md §13, "What an attacker can do". An attacker who knows all other records sees a release and says whether
one record is the first or the second of two that it may be. A false alarm is "the second" where it is the first; the
power is the probability of "the second" where it is so. Without a release power and false alarms are equal.
"""

import math
from statistics import NormalDist

from dbdp.privacy.accounting.events import Event, Release

FALSE_ALARMS = (0.001, 0.01, 0.05, 0.1, 0.5)
_ORDERS = (1.25, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0)
_NORMAL = NormalDist()
_MARGIN = 1e-9  # above the error of the closed forms


def attack_power(release: Release, false_alarms: float) -> float:
    """Return an upper bound on the power of every test for a record with at most this rate of false alarms.

    The guarantee is for neighbours as the release defines them; the rate α is from 0 to 1, as is the bound. It is
    attained by the Gaussian mechanism, and by randomised response.

    Proof. A test has the powers α in one world and p in the other; it is post-processing. By (ε, δ) in both directions,
    for the test and for its opposite, p ≤ e^ε α + δ and 1 - α ≤ e^ε (1 - p) + δ. Outside a leak ℓ, a distance in total
    variation in each world, the event has bounds of its own: the test then has p* ≥ p - ℓ and α* ≤ α + ℓ. If the event
    is at least as private as N(μ, 1) against N(0, 1), p* ≤ Φ(Φ⁻¹(α*) + μ) (Neyman & Pearson; Dong, Roth & Su 2022).
    A Rényi divergence D at the order a does not grow if only the test's answer is kept, for which it says
    p*^a α*^(1-a) + (1-p*)^a (1-α*)^(1-a) ≤ e^((a-1)D), and the same with both worlds exchanged. ∎
    """
    rate = min(max(false_alarms, 0.0), 1.0)
    growth = math.exp(min(release.epsilon, 700.0))
    bounds = [1.0, growth * rate + release.delta, 1 - (1 - release.delta - rate) / growth]
    leaking = release.event.leak(0.0)  # at least the total variation
    if leaking < 1 - rate:
        bounds.append(_power_outside(release.event, rate + leaking) + leaking)
    return max(rate, min(1.0, min(bounds) + _MARGIN))


def attack_powers(release: Release) -> dict[str, float]:
    """Return `attack_power` for the rates of FALSE_ALARMS, rounded up to four digits, as receipts show it."""
    return {f"{rate:g}": _rounded_up(attack_power(release, rate)) for rate in FALSE_ALARMS}


def _power_outside(event: Event, rate: float) -> float:
    """Return the bound that the event has outside its leak."""
    square = event.gaussian_square()
    if square is not None:
        return _gaussian_power(math.sqrt(square), rate)
    known = [(order, event.divergence(order)) for order in _ORDERS if event.is_known_at(order)]
    return min((_renyi_power(order, value, rate) for order, value in known if math.isfinite(value)), default=1.0)


def _gaussian_power(mean: float, rate: float) -> float:
    return _NORMAL.cdf(_NORMAL.inv_cdf(rate) + mean) if 0 < rate < 1 else rate


def _renyi_power(order: float, value: float, rate: float) -> float:
    """Return the largest power, rounded up, whose divergences from the rate and back are at most a value."""
    if not 0 < rate < 1:
        return 1.0
    low, high = rate, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        between = max(_log_excess(order, middle, rate), _log_excess(order, rate, middle))
        low, high = (middle, high) if between <= (order - 1) * value else (low, middle)
    return high


def _log_excess(order: float, one: float, other: float) -> float:
    """Return ln(p^a q^(1-a) + (1-p)^a (1-q)^(1-a)), for p and q between 0 and 1."""
    if one == 1.0 or other == 1.0:
        return math.inf if other == 1.0 else (1 - order) * math.log(other)
    terms = [order * math.log(p) + (1 - order) * math.log(q) for p, q in ((one, other), (1 - one, 1 - other))]
    return max(terms) + math.log1p(math.exp(-abs(terms[0] - terms[1])))


def _rounded_up(value: float) -> float:
    digits = 4 - math.ceil(math.log10(value)) if value > 0 else 0
    return min(1.0, math.ceil(value * 10**digits) / 10**digits)
