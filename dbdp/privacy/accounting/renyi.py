"""Conversions of Rényi divergences and zCDP to (ε, δ), and their best orders.

privacy.md §13. Closed forms, independent of events and budgets.
"""

import math
from collections.abc import Callable

SLACK = 1e-12  # bounds the relative error of a closed form in floating point


def conversion(order: float, delta: float) -> float:
    """Return κ(α): an order-α Rényi divergence of c is (c + κ, δ)-DP.

    κ(α) = ln(1 - 1/α) - (ln δ + ln α)/(α - 1) (Canonne, Kamath & Steinke 2020; privacy.md §13).
    """
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def best_order(epsilon: float, delta: float) -> float:
    """Return the order α at which Gaussians cost least of an (ε, δ) budget (§13, default α*).

    With κ'(α) = (ln δ + ln α)/(α - 1)², the least ρ has ρ = -κ'(α) and αρ + κ(α) = ε; the left side
    falls in α. Any α is sound: no margin is needed.
    """
    return _order_where(lambda order: conversion(order, delta) - order * _slope(order, delta), epsilon, delta)


def epsilon_of(rho: float, delta: float) -> float:
    """Return ε, rounded up, such that ρ-zCDP is (ε, δ)-DP: the least αρ + κ(α).

    The minimum is at ρ = -κ'(α), whose right side falls in α. Any α is sound.
    """
    order = _order_where(lambda order: -_slope(order, delta), rho, delta)
    return (order * rho + conversion(order, delta)) * (1 + SLACK) + SLACK


def _order_where(falling: Callable[[float], float], value: float, delta: float) -> float:
    """Return the order, up to 1/δ, at which a decreasing function has a value, by bisection on ln(α - 1)."""
    low, high = -30.0, min(60.0, math.log(1 / delta - 1) - 1e-9)
    for _ in range(200):
        middle = (low + high) / 2
        if falling(1 + math.exp(middle)) > value:
            low = middle
        else:
            high = middle
    return 1 + math.exp(high)


def _slope(order: float, delta: float) -> float:
    return (math.log(delta) + math.log(order)) / (order - 1) ** 2


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return σ/Δ at which one Gaussian, discrete or not, is (ε, δ)-DP by zCDP and the tight conversion.

    privacy.md §2(ii): a discrete Gaussian on a grid has D_α ≤ αΔ²/2σ², and is not covered by the
    analytic formula. Proof: αρ + κ(α) ≤ ε at one α with ρ = Δ²/2σ²; the rounded value is checked below,
    with a δ that leaves a margin for the evaluation.

    Raise ValueError if ε is too small for δ.
    """
    target = delta * (1 - 1e-9)
    order = best_order(epsilon, target)
    rho = (epsilon - conversion(order, target)) / order * (1 - SLACK)
    if rho <= 0:
        raise ValueError(f"epsilon = {epsilon:g} is too small for delta = {delta:g}; use a larger epsilon")
    multiplier = math.sqrt(1 / (2 * rho)) * (1 + SLACK)
    if order / (2 * multiplier**2) + conversion(order, delta) > epsilon:
        raise ArithmeticError("internal error: the noise multiplier does not satisfy (ε, δ)")
    return multiplier
