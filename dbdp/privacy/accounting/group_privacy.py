"""Group privacy: from a guarantee for one replaced record to one for a unit of up to r records.

privacy.md §11.6. Between neighbours in a unit there is a chain of r + 1 datasets, D_0, …, D_r, each of which differs
from the next in one record; P_0, …, P_r are the laws of a mechanism's output on them.
"""

import math
from dataclasses import replace
from fractions import Fraction
from functools import singledispatch

from dbdp.privacy.accounting.events import (
    MIN_EPSILON,
    ComposedDpEvent,
    EpsilonDeltaDpEvent,
    Event,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    PaddedDpEvent,
    PerturbedMinimumDpEvent,
    PoissonGaussianDpEvent,
    Release,
    SelfComposedDpEvent,
    SphericalLaplaceDpEvent,
    ZCDpEvent,
)
from dbdp.privacy.accounting.subsampling import MOST_ROWS

MOST_EPSILON = 500.0  # with a δ: that of one record is about e^-ε of the unit's, and still a float
_ROOM = 1 + 1e-12  # rounds floating-point results up by more than their error


def joint_delta(epsilon: float, delta: float, rows: int) -> float:
    """Return δ(e^{rε} - 1)/(e^ε - 1), rounded up: (ε, δ) for one record is (rε, that) for r.

    Proof. P_i(S) ≤ e^ε P_{i+1}(S) + δ. Put into each other for i = 0, …, r - 1 that is
    P_0(S) ≤ e^{rε} P_r(S) + δ(1 + e^ε + … + e^{(r-1)ε}). Attained by P_i(S) = δ(1 + … + e^{(r-i-1)ε}). ∎
    """
    if delta == 0:
        return 0.0
    return delta * math.expm1(rows * epsilon) / math.expm1(epsilon) * _ROOM


def share(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """Return the (ε/r, δ') of one record that is (ε, δ) for r of them, rounded down: `joint_delta` solved for δ'."""
    each = epsilon / rows
    if Fraction(each) * rows > Fraction(epsilon):
        each = math.nextafter(each, 0)
    if each < MIN_EPSILON:
        raise ValueError(
            f"epsilon = {epsilon:g} is too small for units of {rows} rows; give {rows * MIN_EPSILON:g} or more"
        )
    if delta > 0 and epsilon > MOST_EPSILON:
        raise ValueError(
            f"epsilon = {epsilon:g} for units of {rows} rows leaves no delta for a row; give {MOST_EPSILON:g} or less, "
            "or delta = 0"
        )
    return each, delta and delta / joint_delta(each, 1.0, rows) / _ROOM


def grouped(release: Release, rows: int, *, epsilon: float, delta: float) -> Release:
    """Return the release for units of r records at (ε, δ), from one for single records at their `share` of it.

    Its event is that of r records together if that has a form, else (ε, δ) itself. A release that
    does not use its δ claims δ = 0.
    """
    claimed = delta if release.delta > 0 else 0.0
    if (
        Fraction(release.epsilon) * rows > Fraction(epsilon)
        or joint_delta(release.epsilon, release.delta, rows) > claimed
    ):
        raise ArithmeticError(
            f"({release.epsilon}, {release.delta}) for one row is not ({epsilon}, {delta}) for {rows}"
        )
    event = _of_units(release.event, rows)
    return Release(event or EpsilonDeltaDpEvent(epsilon, claimed), epsilon, claimed, release.neighbours)


@singledispatch
def _of_units(event: Event, rows: int) -> Event | None:
    """Return the event for r records replaced together, None if no form is proved: then (ε, δ) itself is used."""
    return None


@_of_units.register
def _(event: GaussianDpEvent, rows: int) -> Event:
    """Return the event with z/r in place of the multiplier z.

    Proof, also for an event that is only as hard to distinguish as N(1/z, 1) and N(0, 1). Let a_i be the
    power of a test under P_i: a_i ≤ Φ(Φ⁻¹(a_{i+1}) + 1/z), so Φ⁻¹(a_0) ≤ Φ⁻¹(a_r) + r/z. ∎
    """
    return GaussianDpEvent(event.noise_multiplier / rows / _ROOM)


@_of_units.register
def _(event: ZCDpEvent, rows: int) -> Event:
    """Return the event with r²ρ in place of ρ.

    Proof (Bun & Steinke 2016) by induction on r. By Hölder, for p > 1 and q = p/(p - 1), D_α(P_0‖P_r) ≤
    ((pα - 1)/p)/(α - 1)·D_{pα}(P_0‖P_1) + D_{q(α - 1/p)}(P_1‖P_r), where D_{pα} ≤ ρpα and, with x = p - 1, the other
    is at most (r - 1)²ρ(pα - 1)/x: together ρ(α - 1 + xα)(α/(α - 1) + (r - 1)²/x), which is r²ρα at
    x = (r - 1)(α - 1)/α. ∎
    """
    return ZCDpEvent(event.rho * rows**2 * _ROOM)


@_of_units.register
def _(event: EpsilonDeltaDpEvent, rows: int) -> Event:
    epsilon = math.nextafter(rows * event.epsilon, math.inf)
    return EpsilonDeltaDpEvent(epsilon, joint_delta(event.epsilon, event.delta, rows))


@_of_units.register
def _(event: PerturbedMinimumDpEvent, rows: int) -> Event | None:
    """Return its (ε, δ) for r records: the curves of §7 are for one."""
    return _of_units(EpsilonDeltaDpEvent(event.epsilon, event.delta), rows)


@_of_units.register
def _(event: SphericalLaplaceDpEvent, rows: int) -> Event:
    """Return the event of rε in place of ε: the ends of the chain are within r shifts, and the curve rises in them.

    So it is for a pass over disjoint mini-batches too, whose releases the unit's rows move by r shifts in all. Proof.
    As a function of the shift s, e^((α-1)D_α) is a mean of e^((α-1)‖z-s‖), whose logarithms are convex: so is that of
    the mean, and D_α(x) + D_α(y) ≤ D_α(x + y), as D_α(0) = 0. μ² likewise: -ln(1 - TV) is convex, as its tail is of a
    log-concave density, and μ² is convex in -ln(1 - TV) = -ln 2Φ(-μ/2), since φ(h)/(hΦ(-h)) falls in h. ∎
    """
    return SphericalLaplaceDpEvent(math.nextafter(rows * event.epsilon, math.inf), event.dimension)


@_of_units.register
def _(event: ExponentialMechanismDpEvent, rows: int) -> Event:
    """Return the event with a range of rε in place of ε.

    Proof. On all rows the log-ratio of each link of the chain lies in an interval of length ε: they add up. On a
    Poisson sample they do not, as mixing over the unit's other records moves them; ε = 2 ln(1 - q + qe^h) there, h
    what one record moves log-odds by. Fix the sample of the records *outside* the unit. With the set S of the unit's
    in it, outcome o has weight U_S(o), Z_S in all; scale each record's factor so that it is from 1 to e^h. Then Z_S
    rises with S, and P(o)/U_∅(o) = E[U_S(o)/(U_∅(o)Z_S)] lies between E[1/Z_S] and E[e^{h|S|}/Z_S], at most
    E[1/Z_S]·(1 - q + qe^h)^r (Harris: one factor falls in S, one rises). So ln(P/U_∅) has a range of rε/2, ln(Q/U_∅)
    too: rε together. Mixed over the other samples: pure rε, and D_α, which is quasi-convex, at most α(rε)²/8. ∎
    """
    return ExponentialMechanismDpEvent(math.nextafter(rows * event.epsilon, math.inf))


@_of_units.register
def _(event: PoissonGaussianDpEvent, rows: int) -> Event | None:
    """Return the event for a unit, whose slots are drawn each by itself; its divergence has the proof."""
    together = rows * event.rows
    return replace(event, rows=together) if together <= MOST_ROWS else None


@_of_units.register
def _(event: PaddedDpEvent, rows: int) -> Event | None:
    """Return the padded event of units: both ends of the chain are within the total variation."""
    unpadded = _of_units(event.event, rows)
    return PaddedDpEvent(unpadded, event.total_variation) if unpadded else None


@_of_units.register
def _(event: ComposedDpEvent, rows: int) -> Event | None:
    """Return the composition of the parts: each, given the earlier outputs, is a mechanism on the same unit."""
    parts = [_of_units(part, rows) for part in event.events]
    return ComposedDpEvent(tuple(part for part in parts if part)) if all(parts) else None


@_of_units.register
def _(event: SelfComposedDpEvent, rows: int) -> Event | None:
    part = _of_units(event.event, rows)
    return SelfComposedDpEvent(part, event.count) if part else None
