"""What a release costs: its charge and its leak against a dataset's budget.

privacy.md §13. A budget in mode `renyi` charges an event its Rényi divergence at one fixed order α, in
mode `basic` its stand-alone (ε, δ), in mode `gaussian` its μ². Charges are counted in whole units of
1e-9, leaks in units of 1e-18, both rounded up; the limits are rounded down.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from dbdp.privacy.calibration import analytic_noise_multiplier
from dbdp.privacy.events import (
    EpsilonDeltaDpEvent,
    Event,
    Release,
    check_epsilon_delta,
    divergence,
    gaussian_square,
    leak,
)

CHARGE_UNITS = 10**9
LEAK_UNITS = 10**18
MODES = ("renyi", "basic", "gaussian")
_HALVINGS = 30  # of the search for an ε: to 1e-9 of the budget's
_SLACK = 1e-12  # relative error of a closed form in floating point, with room


@dataclass(frozen=True)
class Allowance:
    """What part of a budget one analyst may spend, and what those releases satisfy by themselves.

    Attributes
    ----------
    charge_limit, leak_limit : in units, as those of the budget
    epsilon, delta : the guarantee that follows for them
    """

    charge_limit: int
    leak_limit: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Budget:
    """What a dataset may spend in all; never changed after registration.

    Attributes
    ----------
    epsilon, delta : the promise
    mode : `renyi`, `basic` or `gaussian`
    order : the Rényi order α (mode renyi), else None
    charge_limit : in units of 1e-9: B = ε - κ(α), or ε, or μ²
    leak_limit : in units of 1e-18: δ₁, or δ (mode basic)

    Notes
    -----
    Neighbours are replace-one. Proof for mode renyi. Under Q the process Π (p_i/q_i)^α e^{-(α-1)c_i}
    has conditional mean at most its last value, since each charge c_i is fixed by the history; with
    Σ c_i ≤ B surely, D_α(P‖Q) ≤ B for all releases together, which is (B + κ(α), δ₀)-DP. The leaks
    add at most E Σδ_i ≤ δ₁. For the other modes see §13.
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
            raise ValueError(f"a budget of mode {mode!r} needs delta > 0; give a delta, or choose mode 'basic'")
        leaks = delta / 10
        order = best_order(epsilon, delta - leaks) if mode == "renyi" else None
        limit = _limit(epsilon, delta - leaks, order)
        if limit < 1 / CHARGE_UNITS:
            raise ValueError(f"epsilon = {epsilon:g} is too small for mode {mode!r}; choose mode 'basic'")
        units = math.floor(limit * CHARGE_UNITS), math.floor(_decimal(leaks) * LEAK_UNITS)
        return cls(epsilon, delta, mode, order, *units)

    def allowance(self, epsilon: float) -> Allowance:
        """Return the part f = ε_s/ε of the budget: both limits times f, rounded down.

        Raises
        ------
        ValueError
            If ε_s is out of range, above ε, or so small that nothing is left.

        Notes
        -----
        privacy.md §13. Proof. Its releases have Σc_i ≤ fB and Σδ_i ≤ fδ₁ surely, so that the theorem of
        their mode holds with these limits. Basic: they are (fε, fδ)-DP. Else they are (ε', δ)-DP for the
        ε' at which a budget with δ₀ = δ - fδ₁ would have the limit fB, sought from above: limits grow with
        ε', and fB ≤ B, so that it is at most ε.
        """
        check_epsilon_delta(epsilon, self.delta)
        if epsilon > self.epsilon:
            raise ValueError(
                f"epsilon = {epsilon:g} of an allowance is above the {self.epsilon:g} of the dataset; give at most that"
            )
        part = _decimal(epsilon) / _decimal(self.epsilon)
        charges, leaks = math.floor(part * self.charge_limit), math.floor(part * self.leak_limit)
        if charges == 0:
            raise ValueError(f"epsilon = {epsilon:g} of an allowance is too small to be counted; give more")
        if self.mode == "basic":
            return Allowance(charges, leaks, charges / CHARGE_UNITS, leaks / LEAK_UNITS)
        return Allowance(charges, leaks, self._implied(charges / CHARGE_UNITS, leaks / LEAK_UNITS), self.delta)

    def _implied(self, charge: float, leaks: float) -> float:
        """Return ε' ≤ ε at which charges of that sum are (ε', δ - leaks)-DP."""
        enough, low = self.epsilon, 0.0
        for _ in range(_HALVINGS):
            middle = (low + enough) / 2
            if _limit(middle, self.delta - leaks, self.order) >= charge * (1 + _SLACK):
                enough = middle
            else:
                low = middle
        return enough

    def cost(self, release: Release) -> tuple[int, int]:
        """Return charge and leak of a release, in units, rounded up (the table of §13).

        Raises
        ------
        ValueError
            If an add-remove release has no sound replace-one form.
        """
        made = release.as_replace_one()
        if self.mode == "basic":
            return _claimed(made.epsilon, CHARGE_UNITS), _claimed(made.delta, LEAK_UNITS)
        if self.order is not None:
            return _computed(divergence(made.event, self.order)), _claimed(leak(made.event, self.epsilon), LEAK_UNITS)
        square, leaks = gaussian_square(made.event, EpsilonDeltaDpEvent(made.epsilon, made.delta))
        return _computed(square), _claimed(made.delta if leaks else 0.0, LEAK_UNITS)


def _limit(epsilon: float, delta: float, order: float | None) -> float:
    """Return B = ε - κ(α), or μ² of the Gaussian that is just (ε, δ₀)-DP, rounded down."""
    if order is None:
        return analytic_noise_multiplier(epsilon, delta) ** -2 * (1 - _SLACK)
    return (epsilon - conversion(order, delta)) * (1 - _SLACK) - _SLACK


def conversion(order: float, delta: float) -> float:
    """Return κ(α): an order-α Rényi divergence of c is (c + κ, δ)-DP.

    κ(α) = ln(1 - 1/α) - (ln δ + ln α)/(α - 1) (Canonne, Kamath & Steinke 2020; privacy.md §13).
    """
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def least_epsilon(event: Event, delta: float) -> float:
    """Return ε such that an event without leaks is (ε, δ)-DP: the best of the tight conversions on a grid of α."""
    orders = [1 + math.exp(step / 16) for step in range(-64, 192)]
    return min(divergence(event, order) + conversion(order, delta) for order in orders) * (1 + _SLACK)


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


def _computed(charge: float) -> int:
    """Return a charge that floating point computed, in units, rounded up with room for its error."""
    if not charge < math.inf:
        raise ValueError(f"a charge of {charge} is above every budget; ask for more noise, or for fewer steps")
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
