"""Budgets, and the charge and leak of each release against them.

privacy.md §13. A budget in mode `renyi` charges an event its Rényi divergence at one fixed order α, in
mode `basic` its stand-alone (ε, δ), in mode `gaussian` its μ², in mode `zcdp` its ρ. Charges are counted in
integer units of 1e-9, leaks in units of 1e-18, both rounded up; the limits are rounded down.
"""

import math
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context
from fractions import Fraction

from dbdp.checks import is_number, one_of
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import (
    MAX_EPSILON,
    MIN_EPSILON,
    EpsilonDeltaDpEvent,
    Event,
    GaussianDpEvent,
    Release,
    SphericalLaplaceDpEvent,
    check_epsilon_delta,
)
from dbdp.privacy.accounting.renyi import SLACK, best_order, conversion, epsilon_of

CHARGE_UNITS = 10**9
LEAK_UNITS = 10**18
MODES = ("renyi", "basic", "gaussian", "zcdp")
MAX_ORDER = 1e6
_FINE = 1e-9  # relative precision of `largest_epsilon`


@dataclass(frozen=True)
class Budget:
    """The total that a dataset's releases may spend; fixed at registration.

    Neighbours are replace-one. Proof for mode renyi. Under Q the process Π (p_i/q_i)^α e^{-(α-1)c_i}
    has conditional mean at most its last value, since each charge c_i is fixed by the history; with
    Σ c_i ≤ B surely, D_α(P‖Q) ≤ B for all releases together, which is (B + κ(α), δ₀)-DP. The leaks
    add at most E Σδ_i ≤ δ₁. Mode zcdp is the same at every α, with c_i = αρ_i. For the others see §13.
    """

    # epsilon, delta: the guarantee for all releases together.
    epsilon: float
    delta: float
    mode: str  # `renyi`, `basic`, `gaussian` or `zcdp`
    order: float | None  # the Rényi order α (mode renyi), else None
    charge_limit: int  # in units of 1e-9: B = ε - κ(α), or ε, or μ², or ρ
    leak_limit: int  # in units of 1e-18: δ₁, or δ (mode basic)

    @classmethod
    def of(
        cls,
        *,
        epsilon: float | None,
        delta: float,
        mode: str = "renyi",
        rho: float | None = None,
        order: float | None = None,
    ) -> "Budget":
        """Return the budget for a guarantee (ε, δ), or for ρ in place of ε, which is of mode `zcdp`.

        `order` fixes α of mode renyi; None chooses that at which Gaussians cost least. Any α is sound that is fixed
        before the first release; `order_for` returns that at which an expected one costs least.
        """
        if order is not None:
            _check_order(order, mode, rho)
        if rho is not None:
            return cls._of_rho(epsilon, delta, mode, rho)
        if epsilon is None:
            raise ValueError("epsilon is required, e.g. epsilon => 1 (smaller is more private), or rho instead")
        check_epsilon_delta(epsilon, delta)
        one_of("mode", mode, MODES)
        if mode == "basic":
            limits = math.floor(_decimal(epsilon) * CHARGE_UNITS), math.floor(_decimal(delta) * LEAK_UNITS)
            return cls(epsilon, delta, mode, None, *limits)
        if delta == 0:
            raise ValueError(f"a budget of mode {mode!r} needs delta > 0; give a delta, or choose mode 'basic'")
        leaks = delta / 10
        fixed = best_order(epsilon, delta - leaks) if mode == "renyi" and order is None else order
        limit = _limit(mode, fixed, epsilon, delta - leaks)
        if limit < 1 / CHARGE_UNITS:
            remedy = "choose mode 'basic'" if order is None else f"choose another order than {order:g}"
            raise ValueError(f"epsilon = {epsilon:g} is too small for mode {mode!r}; {remedy}")
        units = math.floor(Fraction(limit) * CHARGE_UNITS), math.floor(_decimal(leaks) * LEAK_UNITS)
        return cls(epsilon, delta, mode, fixed, *units)

    def allowance(self, epsilon: float, order: float | None = None) -> "Budget":
        """Return the budget of an allowance: releases within it are (ε_s, δ)-DP by themselves.

        ε_s is at most ε. `order` is that of the charges so far (mode renyi); None chooses the best one of ε_s. Raise
        ValueError if ε_s is out of range, above ε, or too small to be counted.

        privacy.md §13. Proof. The charges and leaks of its own releases are what Σc_i and Σδ_i of the mode's theorem
        are about, at α_s, which is fixed before the first of them. They stay within the limits of (ε_s, δ) in the same
        mode: Σc_i ≤ B(ε_s), and Σδ_i ≤ fδ₁ ≤ δ₁, f = ε_s/ε ≤ 1; in mode basic Σε_i ≤ ε_s and Σδ_i ≤ fδ. ∎ A leak is
        counted at ε ≥ ε_s, which is at least that at ε_s. An allowance whose ε_s was changed keeps the largest of them.
        """
        check_epsilon_delta(epsilon, self.delta)
        if epsilon > self.epsilon:
            raise ValueError(
                f"epsilon = {epsilon:g} of an allowance is above the {self.epsilon:g} of the dataset; give at most that"
            )
        try:
            own = Budget.of(epsilon=epsilon, delta=self.delta, mode=self.mode, order=order)
        except ValueError:
            spent = f" at order {order:.4g}, at which it has spent" if order is not None else ""
            text = f"epsilon = {epsilon:g} of an allowance is too small to be counted{spent}"
            raise ValueError(f"{text}; give more, or revoke it") from None
        leaks = math.floor(_decimal(epsilon) / _decimal(self.epsilon) * self.leak_limit)
        return replace(own, delta=leaks / LEAK_UNITS if self.mode == "basic" else self.delta, leak_limit=leaks)

    @classmethod
    def _of_rho(cls, epsilon: float | None, delta: float, mode: str, rho: float) -> "Budget":
        """Return the budget of ρ and δ; its ε is what they imply, rounded up."""
        if epsilon is not None:
            raise ValueError(f"epsilon = {epsilon} and rho = {rho} exclude each other in a budget; leave one out")
        if mode not in ("renyi", "zcdp"):  # the first is the default
            raise ValueError(f"mode {mode!r} does not support rho; drop mode, or give epsilon instead of rho")
        if not (isinstance(rho, int | float) and 1 / CHARGE_UNITS <= rho <= MAX_EPSILON):
            raise ValueError(f"rho = {rho} must be a number from {1 / CHARGE_UNITS:g} to {MAX_EPSILON:g}")
        if not 0 < delta < 1:
            raise ValueError(f"delta = {delta} of a budget in rho must be above 0 and below 1; give one such as 1e-6")
        leaks = delta / 10
        implied = max(epsilon_of(rho, delta - leaks), MIN_EPSILON)
        check_epsilon_delta(implied, delta)
        units = math.floor(_decimal(rho) * CHARGE_UNITS), math.floor(_decimal(leaks) * LEAK_UNITS)
        return cls(implied, delta, "zcdp", None, *units)

    def share(self, charge: int, leaks: int) -> float:
        """Return the larger share of the two limits that a charge and a leak, in units, are."""
        of_leaks = leaks / self.leak_limit if self.leak_limit else 0.0
        return max(charge / self.charge_limit, of_leaks)

    def cost(self, release: Release) -> tuple[int, int]:
        """Return charge and leak of a release, in units, rounded up (the table of §13)."""
        release = release.as_replace_one()
        if self.mode == "basic":
            return _claimed(release.epsilon, CHARGE_UNITS), _claimed(release.delta, LEAK_UNITS)
        if self.order is not None:
            event = release.event if release.event.is_known_at(self.order) else release.alone()
            return _computed(event.divergence(self.order)), _claimed(event.leak(self.epsilon), LEAK_UNITS)
        amount, leaking = release.as_concentrated() if self.mode == "zcdp" else release.as_gaussian()
        return _computed(amount), _claimed(leaking.leak(self.epsilon), LEAK_UNITS)


def order_for(release: Release, *, epsilon: float, delta: float) -> float:
    """Return the order at which most releases like this one fit a budget of (ε, δ) in mode renyi: for `Budget.of`.

    To three digits; any order is sound. It is that of Gaussians for most releases, and a smaller one for runs on
    small samples whose ε is large, which have no useful divergence beyond some order.
    """
    event, best = release.as_replace_one().event, best_order(epsilon, delta * 0.9)
    orders = [best, *(float(f"{1 + math.exp(step / 20):.3g}") for step in range(-40, 200))]
    return max(
        (order for order in orders if order > 1),
        key=lambda order: _limit("renyi", order, epsilon, delta * 0.9) / event.divergence(order),
    )


def one_release(budget: Budget, epsilon: float, delta: float, parameters: int | None = None) -> tuple[int, int]:
    """Return charge and leak, in units, of a release that adds noise at the end.

    The noise is spherical Laplace where δ is 0, on so many parameters, or of any pure law if they are unknown; else
    Gaussian at the analytic calibration.
    """
    event: Event = EpsilonDeltaDpEvent(epsilon, delta)
    if delta > 0:
        event = GaussianDpEvent(analytic_noise_multiplier(epsilon, delta))
    elif parameters is not None:
        event = SphericalLaplaceDpEvent(epsilon, parameters)
    return budget.cost(Release(event, epsilon, delta))


def largest_epsilon(budget: Budget, charge: int, leaks: int, delta: float, parameters: int | None = None) -> float:
    """Return the largest ε, at most the budget's, of `one_release` at δ within a charge and a leak, in units.

    It is 0 if none fits. The cost increases in ε, and the result of the bisection is within both.
    """

    def fits(epsilon: float) -> bool:
        cost = one_release(budget, epsilon, delta, parameters)
        return cost[0] <= charge and cost[1] <= leaks

    low, high = MIN_EPSILON, budget.epsilon
    if not fits(low):
        return 0.0
    if fits(high):
        return high
    while high > low * (1 + _FINE):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    short = float(f"{high:.6g}")  # 0.5 rather than 0.4999999999
    return short if low < short <= budget.epsilon and fits(short) else low


def rounded_down(epsilon: float) -> float:
    """Return an ε of four digits, never above it: one that fits still does."""
    return float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(epsilon)))


def _check_order(order: float, mode: str, rho: float | None) -> None:
    """Raise ValueError for an order that is none, or is not of mode renyi."""
    if mode != "renyi" or rho is not None:
        raise ValueError(f"rdp_order = {order} is only for mode 'renyi'; drop rdp_order")
    if not (is_number(order) and 1 < order <= MAX_ORDER):
        raise ValueError(f"rdp_order = {order} must be above 1 and at most {MAX_ORDER:,.0f}; leave it out")


def _limit(mode: str, order: float | None, epsilon: float, delta: float) -> float:
    """Return the limit of the sum of charges for (ε, δ₀), rounded down.

    Of mode renyi B = ε - κ(α) at its order, of mode gaussian μ² of the Gaussian that is just (ε, δ₀)-DP, of mode
    zcdp the largest ρ with αρ + κ(α) ≤ ε at some α, which is the best order.
    """
    if mode == "gaussian":
        return analytic_noise_multiplier(epsilon, delta) ** -2 * (1 - SLACK)
    fixed = best_order(epsilon, delta) if order is None else order
    divergence_left = (epsilon - conversion(fixed, delta)) * (1 - SLACK) - SLACK
    return divergence_left if mode == "renyi" else divergence_left / fixed * (1 - SLACK)


def _computed(charge: float) -> int:
    """Return a computed charge in units, rounded up by more than its floating-point error."""
    if not charge < math.inf:
        raise ValueError(f"a charge of {charge} is above every budget; use more noise, or fewer steps")
    return math.ceil(Fraction(charge) * (1 + Fraction(SLACK)) * CHARGE_UNITS)


def _claimed(value: float, units: int) -> int:
    """Return a stated ε or δ in units, rounded up."""
    return math.ceil(_decimal(value) * units)


def _decimal(value: float) -> Fraction:
    """Return the decimal number that a float is written as: ten charges of 0.1 fit a budget of 1.

    It differs from the float by a factor within 1 ± 2⁻⁵³; every noise scale is rounded up by more
    (`mechanisms.ROOM`).
    """
    return Fraction(repr(float(value)))
