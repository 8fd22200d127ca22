"""What a release costs: events, their stand-alone guarantee, and their charge against a budget.

privacy.md §13. An event says what was done, with dp_accounting's names and meaning; a budget in mode
`renyi` charges it at one fixed order α, in mode `basic` by its (ε, δ). Charges are counted in whole
units of 1e-9, leaks in units of 1e-18, both rounded up.
"""

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

CHARGE_UNITS = 10**9
LEAK_UNITS = 10**18
MODES = ("renyi", "basic")
MIN_EPSILON = 1e-9  # one unit
MAX_EPSILON = 1e6  # far beyond any promise; keeps α away from 1 and odometers within 64 bits
_SLACK = 1e-12  # relative error of the closed forms below in floating point, with room


@dataclass(frozen=True)
class GaussianDpEvent:
    """Gaussian noise of standard deviation noise_multiplier × sensitivity."""

    noise_multiplier: float


@dataclass(frozen=True)
class EpsilonDeltaDpEvent:
    """A mechanism of which only its (ε, δ) is used; with δ = 0 exactly pure."""

    epsilon: float
    delta: float


Event = GaussianDpEvent | EpsilonDeltaDpEvent


@dataclass(frozen=True)
class Release:
    """The two true statements about one mechanism: its event, and its stand-alone (ε, δ)."""

    event: Event
    epsilon: float
    delta: float

    def as_data(self) -> dict[str, Any]:
        """Return the release as data, for the ledger."""
        event = {"event": type(self.event).__name__, **asdict(self.event)}
        return {"event": event, "epsilon": self.epsilon, "delta": self.delta}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "Release":
        """Return the release that `as_data` described.

        Raises
        ------
        ValueError
            If there is no such event, or its numbers are out of range.
        """
        try:
            numbers = dict(data["event"])
            kind = numbers.pop("event")
            check_epsilon_delta(data["epsilon"], data["delta"])
            if kind == GaussianDpEvent.__name__ and 1e-9 <= numbers["noise_multiplier"] <= 1e12:
                return cls(GaussianDpEvent(**numbers), data["epsilon"], data["delta"])
            if kind == EpsilonDeltaDpEvent.__name__:
                check_epsilon_delta(**numbers)
                return cls(EpsilonDeltaDpEvent(**numbers), data["epsilon"], data["delta"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"guarantee {data} lacks what a charge needs: {error}") from error
        raise ValueError(f"event {data['event']} cannot be charged")


@dataclass(frozen=True)
class Budget:
    """What a dataset may spend in all; never changed after registration.

    Attributes
    ----------
    epsilon, delta : the promise
    mode : `renyi` or `basic`
    order : the Rényi order α (mode renyi), else None
    charge_limit : in units of 1e-9: B = ε - κ(α), or ε
    leak_limit : in units of 1e-18: δ₁, or δ
    """

    epsilon: float
    delta: float
    mode: str
    order: float | None
    charge_limit: int
    leak_limit: int

    @classmethod
    def of(cls, *, epsilon: float, delta: float, mode: str = "renyi") -> "Budget":
        """Return the budget of a promise (ε, δ).

        Raises
        ------
        ValueError
            If ε or δ is out of range, or too small for the mode.
        """
        check_epsilon_delta(epsilon, delta)
        if mode not in MODES:
            raise ValueError(f"mode {mode!r} is unknown; choose one of {', '.join(MODES)}")
        if mode == "basic":
            limits = math.floor(_decimal(epsilon) * CHARGE_UNITS), math.floor(_decimal(delta) * LEAK_UNITS)
            return cls(epsilon, delta, mode, None, *limits)
        if delta == 0:
            raise ValueError("a budget of mode 'renyi' needs delta > 0; give a delta, or choose mode 'basic'")
        leak = delta / 10
        order = best_order(epsilon, delta - leak)
        limit = (epsilon - conversion(order, delta - leak)) * (1 - _SLACK) - _SLACK
        if limit < 1 / CHARGE_UNITS:
            raise ValueError(f"epsilon = {epsilon:g} is too small for mode 'renyi'; choose mode 'basic'")
        units = math.floor(limit * CHARGE_UNITS), math.floor(_decimal(leak) * LEAK_UNITS)
        return cls(epsilon, delta, mode, order, *units)

    def cost(self, release: Release) -> tuple[int, int]:
        """Return charge and leak of a release, in units, rounded up (the table of §13).

        An (ε, δ)-mechanism has the form "leak with probability δ, else ε-randomised response" by
        Blackwell's theorem: it costs its pure part at order α, and leaks δ.
        """
        if self.order is None:
            return _claimed(release.epsilon, CHARGE_UNITS), _claimed(release.delta, LEAK_UNITS)
        event = release.event
        if isinstance(event, GaussianDpEvent):
            return _computed(self.order / (2 * event.noise_multiplier**2)), 0
        return _computed(pure_divergence(event.epsilon, self.order)), _claimed(event.delta, LEAK_UNITS)


def check_epsilon_delta(epsilon: float, delta: float) -> None:
    """Raise ValueError unless MIN_EPSILON ≤ ε ≤ MAX_EPSILON and 0 ≤ δ < 1."""
    if not all(isinstance(value, int | float) for value in (epsilon, delta)):
        raise ValueError(f"epsilon = {epsilon!r} and delta = {delta!r} must be numbers")
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ValueError(
            f"epsilon = {epsilon} must be positive and at most {MAX_EPSILON:g}, and at least {MIN_EPSILON:g}"
        )
    if not 0 <= delta < 1:
        raise ValueError(f"delta = {delta} must be at least 0 and below 1")


def conversion(order: float, delta: float) -> float:
    """Return κ(α): an order-α Rényi divergence of c is (c + κ, δ)-DP.

    κ(α) = ln(1 - 1/α) - (ln δ + ln α)/(α - 1) (Canonne, Kamath & Steinke 2020; privacy.md §13).
    """
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def best_order(epsilon: float, delta: float) -> float:
    """Return the order α at which Gaussians of an (ε, δ) budget are cheapest (§13, default α*).

    With κ'(α) = (ln δ + ln α)/(α - 1)², the least ρ has ρ = -κ'(α) and αρ + κ(α) = ε; the left side
    falls in α, so bisection on ln(α - 1) finds it. Any α is sound: no margin is needed.
    """

    def epsilon_at(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        return conversion(order, delta) - order * _slope(order, delta)

    low, high = -30.0, min(60.0, math.log(1 / delta - 1) - 1e-9)
    for _ in range(200):
        middle = (low + high) / 2
        if epsilon_at(middle) > epsilon:
            low = middle
        else:
            high = middle
    return 1 + math.exp(high)


def _slope(order: float, delta: float) -> float:
    return (math.log(delta) + math.log(order)) / (order - 1) ** 2


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return σ/Δ at which one Gaussian, discrete or not, is (ε, δ)-DP by zCDP and the tight conversion.

    privacy.md §2(ii): a discrete Gaussian on a grid has D_α ≤ αΔ²/2σ², and is not covered by the
    analytic formula. Proof: αρ + κ(α) ≤ ε at one α with ρ = Δ²/2σ²; checked once more below for the
    rounded value, with a δ that leaves room for the evaluation.
    """
    target = delta * (1 - 1e-9)
    order = best_order(epsilon, target)
    rho = (epsilon - conversion(order, target)) / order * (1 - _SLACK)
    if rho <= 0:
        raise ValueError(f"epsilon = {epsilon:g} is too small for delta = {delta:g}; use a larger epsilon")
    multiplier = math.sqrt(1 / (2 * rho)) * (1 + _SLACK)
    if order / (2 * multiplier**2) + conversion(order, delta) > epsilon:
        raise ArithmeticError("the noise multiplier failed its own check")
    return multiplier


def pure_divergence(epsilon: float, order: float) -> float:
    """Return r(ε, α): the largest order-α Rényi divergence of an ε-DP mechanism (§13).

    (1/(α-1)) ln[(sinh αε - sinh (α-1)ε)/sinh ε] = (1/(α-1)) ln[cosh((α-1/2)ε)/cosh(ε/2)], attained by
    randomised response; at most min(ε, αε²/2).
    """
    exact = (_log_cosh((order - 0.5) * epsilon) - _log_cosh(epsilon / 2)) / (order - 1)
    return min(epsilon, order * epsilon**2 / 2, max(exact, 0.0) + 1e-15)


def _log_cosh(x: float) -> float:
    """ln cosh x for x ≥ 0 without overflow, and without cancellation near 0."""
    return math.log1p(2 * math.sinh(x / 2) ** 2) if x < 1 else x + math.log1p(math.exp(-2 * x)) - math.log(2)


def _computed(charge: float) -> int:
    """Return a charge that floating point computed, in units, rounded up with room for its error."""
    return math.ceil(Fraction(charge) * (1 + Fraction(_SLACK)) * CHARGE_UNITS)


def _claimed(value: float, units: int) -> int:
    """Return a stated ε or δ in units, rounded up."""
    return math.ceil(_decimal(value) * units)


def _decimal(value: float) -> Fraction:
    """Return the decimal number a person means by a float: ten charges of 0.1 fit a budget of 1.

    It differs from the float by a factor within 1 ± 2⁻⁵³; every noise scale is rounded up by more
    (`mechanisms.ROOM`).
    """
    return Fraction(repr(float(value)))
