"""Poisson-sampled Gaussian noise under replace-one: the cost of a step, and the least noise for many steps.

privacy.md §4, §5, §9, §10, §11.6. Each record is in a step's mini-batch with probability q, independently of all
else; Gaussian noise of standard deviation σ is added to the sum of the rows' contributions, each of norm at most C.
`multiplier` is σ/C. Neighbours replace a row, or the r rows of a unit; they never add or remove one. The
bounds hold for Poisson sampling alone, not for shuffled, cyclic or fixed-size batches (§10).
Shapes: orders and divergences are (K,).
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from dbdp import checks
from dbdp.privacy import sensitivity
from dbdp.privacy.accounting.calibration import least_multiplier
from dbdp.privacy.accounting.renyi import conversion

_REACH = 11.0  # range of a trapezoid rule beyond the mean of the last Gaussian: e^(-11²/2) is 5e-27
_STEP = 0.4  # of a trapezoid rule on a standard normal density, in error by e^(-2π²/0.4²), 3e-54
_STRIP = 0.45  # the same for the poles of the likelihood ratio, π/μ off the real line: e^(-2π²/0.45), 9e-20
_CLEAR = 35.0  # e^-35 is 6e-16
_LEAST = 1e-100
_LARGEST = 12.0  # C/σ: above it closed forms are used
_POINTS = 1 << 18  # of one quadrature: above it closed forms are used
_AT_ONCE = 1 << 16  # points in memory
_TERMS = 8  # of a series in αL < 0.2: the next is below 1e-10
_ROOM = 1 + 1e-9  # a quadrature is off by less than 1e-11; and a multiplier is rounded up by as much
_EXPONENT = 600.0  # e^600 is a float
_ORDERS = np.array([1 + math.exp(step / 16) for step in range(-64, 192)])  # those of `least_epsilon`
_PLACES = {float(order): place for place, order in enumerate(_ORDERS)}
MOST_ROWS = 64  # of a unit whose mixture is computed
_UNIT_STRIP = 0.1  # of a trapezoid rule for units: e^(-1.6π/0.1) is 2e-22
_TARGET = 1 - 1e-9  # of δ (§14.5)
_STRIDE, _WINDOWS = 8, 12


def poisson_gaussian_divergence(probability: float, multiplier: float, order: float, rows: int = 1) -> float:
    """Return an upper bound on the Rényi divergence of order α > 1 of one step, both ways, for all neighbours.

    Given the other rows' parts, the outputs are (1-q)N(s, σ²I) + qN(s + g, σ²I), and g' for g: their sum s
    is the same in both worlds, and H_γ(p‖q) = ∫(p - γq)₊ is jointly convex. Let σ = 1, μ = C/σ.
    **Theorem.** H_γ is largest, for all γ ≥ 0 at once, for g = -g' with ‖g‖ = μ; so is every D_α, and this
    pair of mixtures on a line dominates, also for steps that are composed adaptively.
    Proof. H_γ + γ = E F(z), F = max((1-q)z₀ + qz₁, γ((1-q)z₀ + qz₂)), z_i the densities of N(θ_i, I),
    θ = 0, g, g', relative to N(0, I): log-normal. F is convex, homogeneous of degree 1: Σ_j z_j∂_ijF = 0,
    and along a straight path of the D_ij = ‖θ_i - θ_j‖² the derivative is -½ Σ_{i<j} D'_ij E[z_i z_j ∂_ijF]
    (Kahane 1986). Let γ ≥ 1. F - γ((1-q)z₀ + qz₂) = (ℓ·z)₊ with ℓ₀ = (1-q)(1-γ) ≤ 0, ℓ₁ = q, ℓ₂ = -qγ, so
    ∂_ijF has the sign of ℓ_iℓ_j: H_γ rises in ‖g‖ and ‖g - g'‖, falls in ‖g'‖. With ‖g'‖ = r the first two
    are at most μ and μ + r, both reached by g = μe, g' = -re. On that line p/q rises in x, so the best set
    is some x > x*; Q_r(x > x*) falls in r: r = μ is worst. H_γ(P‖Q) = 1 - γ + γH_{1/γ}(Q‖P):
    γ < 1 is the mirror image. ∎ For a unit of r rows see `_unit_divergences`.
    """
    _check_probability(probability)
    if not (0 < multiplier < math.inf and 1 < order < math.inf):
        raise ValueError(f"multiplier = {multiplier} must be positive, order = {order} above 1, and both finite")
    if order in _PLACES and rows == 1:
        return float(_usual(probability, multiplier)[_PLACES[order]])
    return float(_divergences(probability, multiplier, np.array([order]), rows)[0])


def poisson_gaussian_multiplier(epsilon: float, delta: float, probability: float, steps: int) -> float:
    """Return the least σ/C at which `steps` steps are (ε, δ)-DP by the tight conversion.

    Proof. T·D_α + κ(α) ≤ ε at one order α (§2, §13); any order is sound, here the best of those of
    `least_epsilon`. The search begins with every eighth of them. The result is rounded up, and checked.

    Raise ValueError if a parameter is out of range, or no noise suffices.
    """
    _check_probability(probability)
    if not (0 < epsilon < math.inf and 0 < delta < 1 and steps >= 1):
        raise ValueError(
            f"epsilon = {epsilon} must be positive, delta = {delta} between 0 and 1, and steps = {steps} at least 1"
        )
    orders = _orders_for(epsilon, delta)
    excesses = np.array([conversion(float(order), delta * _TARGET) for order in orders]) - epsilon

    def excess(multiplier: float, among: np.ndarray) -> np.ndarray:
        return steps * _divergences(probability, multiplier, orders[among]) + excesses[among]

    multiplier = _least_multiplier(excess, len(orders)) * _ROOM
    if excess(multiplier, np.arange(len(orders))).min() > 0:
        raise ArithmeticError("internal error: the noise multiplier does not satisfy (ε, δ)")
    return multiplier


def amplified(epsilon: float, probability: float) -> float:
    """Return ε' = ln(1 + q(e^ε - 1)): an (ε, δ)-DP mechanism on a Poisson-sampled mini-batch is (ε', qδ)-DP.

    Both the removal and the replacement of one record of the mini-batch must be (ε, δ)-DP; privacy.md §5.
    Proof (advanced joint convexity; Balle, Barthe & Gaboardi 2018). Fix the other rows' sample. Let a, b, c be the
    densities of an output without the record, with it, and with its neighbour; γ = e^ε, γ' = e^ε' = 1 + q(γ - 1)
    and t = γ'/γ. Since 1 - γ' = -q(γ - 1) and γ - γ' = (1 - q)(γ - 1),
    (1-q)a + qb - γ'((1-q)a + qc) = q(b - γ((1-t)a + tc)). The positive part has the integral q·H_γ(b‖(1-t)a + tc) ≤
    q((1-t)H_γ(b‖a) + tH_γ(b‖c)) ≤ qδ, by convexity; mixed over the other rows' samples, again. ∎ Attained where
    a = c. Replacement alone is not enough: a mechanism that reports the size of the mini-batch is 0-DP for
    replacement, and reveals who is in it.
    """
    _check_probability(probability)
    checks.positive("epsilon", epsilon, "give the ε of one mini-batch")
    if epsilon < _EXPONENT:
        return math.log1p(probability * math.expm1(epsilon)) * (1 + 1e-14)
    return (epsilon + math.log(probability + (1 - probability) * math.exp(-epsilon))) * (1 + 1e-14)


def _check_probability(probability: float) -> None:
    if not 0 < probability <= 1:
        raise ValueError(f"probability = {probability} of sampling a row must be positive and at most 1")


def _least_multiplier(excess: Callable[[float, np.ndarray], np.ndarray], count: int) -> float:
    """Return the least multiplier at which one of the orders has an excess of at most 0.

    Some orders are searched at a time, until the best of all is among them.
    """
    every, multiplier = np.arange(count), None
    among = every[::_STRIDE]
    for _ in range(_WINDOWS):
        multiplier = least_multiplier(partial(_suffices, excess, among), near=multiplier)
        best = int(excess(multiplier, every).argmin())
        if best in among:
            break
        among = every[max(best - _STRIDE, 0) : best + _STRIDE + 1]
    assert multiplier is not None
    return multiplier


def _suffices(excess: Callable[[float, np.ndarray], np.ndarray], among: np.ndarray, multiplier: float) -> bool:
    return bool(excess(multiplier, among).min() <= 0)


def _orders_for(epsilon: float, delta: float) -> np.ndarray:
    """Return the orders to search for ε: more than usual for a small ε, where the best is near 2 ln(1/δ)/ε."""
    last = math.ceil(16 * math.log(20 * (1 - math.log(delta)) / epsilon))
    return np.array([1 + math.exp(step / 16) for step in range(-64, max(last, 192))])


@lru_cache(maxsize=64)
def _usual(probability: float, multiplier: float) -> np.ndarray:
    """Return the divergences at all orders of `least_epsilon`."""
    return _divergences(probability, multiplier, _ORDERS)


def _divergences(probability: float, multiplier: float, orders: np.ndarray, rows: int = 1) -> np.ndarray:
    """Return the divergences of the dominating pair, rounded up: the minimum of closed forms and quadratures.

    They increase in q and μ, so both may be raised to _LEAST.
    """
    sensitivity.pause()
    mean, probability = max(1 / multiplier, _LEAST), max(probability, _LEAST)
    if probability == 1:
        return orders * (2 * mean * rows) ** 2 / 2 * _ROOM
    if rows > 1:
        return _unit_divergences(probability, mean, orders, rows)
    bounds = _closed_forms(probability, mean, orders)
    if mean > _LARGEST:
        return bounds
    odds = abs(math.log(probability) - math.log1p(-probability))
    chosen = np.flatnonzero((orders - 1) * mean**2 < 2 * (odds + _CLEAR))
    below, above, widths = _reach(probability, mean, orders[chosen])
    for part in _parts(below + above + 1):
        those = chosen[part]
        logs = _trapezoid(
            orders[those], below[part], above[part], widths[part], lambda x, order: _pair(probability, mean, x, order)
        )
        bounds[those] = np.minimum(bounds[those], _softplus(logs) / (orders[those] - 1) * _ROOM)
    return bounds


def _closed_forms(probability: float, mean: float, orders: np.ndarray) -> np.ndarray:
    """Return the minimum of two upper bounds, for orders whose quadrature is too long or not needed.

    Proof. With A, B = 1 - q + qe^{±μx-μ²/2}, e^{(α-1)D_α} = E A^α B^{1-α}, x standard normal. (1) B ≥ 1 - q,
    and Minkowski: ‖A‖_α ≤ 1 - q + q‖e^{μx-μ²/2}‖_α, the last e^{(α-1)μ²/2}; once (α-1)μ²/2 is above
    ln(1/q) + 35, x near αμ has all the weight, where both are equalities up to e^-35. (2) p^α q^{1-α} is jointly
    convex: couple the mini-batches; e^{(α-1)D_α} ≤ 1 - q + qe^{α(α-1)(2μ)²/2}. ∎
    """
    with np.errstate(over="ignore"):
        apart = (orders - 1) * (mean * mean / 2)
        norms = orders / (orders - 1) * _log_mixture(probability, apart) - math.log1p(-probability)
        coupled = _log_mixture(probability, 4 * orders * apart) / (orders - 1)
    return np.minimum(norms, coupled) * _ROOM


def _log_mixture(probability: float, exponents: np.ndarray) -> np.ndarray:
    """Return ln(1 - q + qe^x) for x ≥ 0, without overflow, and without cancellation near 0."""
    small = np.log1p(probability * np.expm1(np.minimum(exponents, _EXPONENT)))
    return np.where(exponents < _EXPONENT, small, np.maximum(small, math.log(probability) + exponents + 1e-15))


def _reach(probability: float, mean: float, orders: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many points a trapezoid rule needs below and above 0, and their distance, for each order.

    With s(x) = q e^{μx-μ²/2}/A the integrand's log rises by at most αμ + (α-1)μs(-x) - x, or, where it is
    φBα(α-1)L²/2, by 2μ - x: it is negligible further than _REACH beyond the zero of that. A^α is a mixture
    of Gaussians or bounded by it off the real line, where B^{1-α} grows as e^{(α-1)μ²s(1-s)y²/2} at most.
    """
    excess, odds = orders - 1, probability * math.exp(-mean * mean / 2) / (1 - probability)
    rare = odds * np.exp(-orders * mean * mean)
    above = np.maximum(orders, 3.0) * mean + excess * mean * rare / (1 + rare) + _REACH
    growth = 2 * excess * mean * mean * min(odds / (1 + odds), 0.25)
    widths = np.minimum(_STEP / np.sqrt(1 + growth), _STRIP / mean)
    return np.ceil((3 * mean + _REACH) / widths).astype(int), np.ceil(above / widths).astype(int), widths


def _parts(points: np.ndarray) -> list[np.ndarray]:
    """Return the indices of the quadratures that are not too long, in groups that fit in memory."""
    short = np.flatnonzero(points <= _POINTS)
    if not len(short):
        return []
    groups = np.cumsum(points[short]) // _AT_ONCE
    return np.split(short, np.flatnonzero(np.diff(groups)) + 1)


def _trapezoid(
    orders: np.ndarray,
    below: np.ndarray,
    above: np.ndarray,
    widths: np.ndarray,
    log_integrand: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return ln ∫f(x, α)φ(x)dx for each order, φ standard normal, by a trapezoid rule for each.

    The error of an analytic integrand is e^{-2πy/h} times its growth within y of the real line: below 1e-15.
    """
    points = below + above + 1
    starts = np.cumsum(points) - points
    x = (np.arange(points.sum()) - np.repeat(starts + below, points)) * np.repeat(widths, points)
    logs = log_integrand(x, np.repeat(orders, points)) - x * x / 2
    largest = np.maximum.reduceat(logs, starts)
    sums = np.add.reduceat(np.exp(logs - np.repeat(largest, points)), starts)
    return np.log(sums * widths / math.sqrt(2 * math.pi)) + largest


def _pair(probability: float, mean: float, x: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return ln B((A/B)^α - 1 - α(A/B - 1)), with mean e^{(α-1)D_α} - 1, since A and B have mean 1."""
    damped, distance = probability * math.exp(-mean * mean / 2), np.abs(x)
    less = (1 - probability) + damped * np.exp(-mean * distance)  # the lesser of A and B
    ratio = np.log1p(2 * damped * np.sinh(mean * distance) / less)
    return np.log(less) + np.where(x < 0, ratio, 0.0) + _log_gap(np.copysign(ratio, x), orders)


def _log_gap(loss: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return ln(e^{αL} - 1 - α(e^L - 1)), which is convex in e^L, without overflow and without cancellation.

    With β = α - 1 it is ln(e^L(e^{βL} - 1) - β(e^L - 1)), and near 0 a series.
    """
    excess, size = orders - 1, np.abs(loss)
    near = orders * size < 0.2
    with np.errstate(divide="ignore", invalid="ignore"):
        once, often = np.expm1(-size), np.expm1(-excess * size)
        rising = excess * once * (1 + often) - often
        falling = often * (1 + once) - excess * once
        logs = np.log(np.where(loss > 0, rising, falling)) + np.where(loss > 0, orders * size, 0.0)
        logs[near] = _log_series(loss[near], orders[near])
    return logs


def _log_series(loss: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return `_log_gap` for small αL: ln Σ_k (α^k - α)L^k/k!, k ≥ 2, where (α^k - α)/(α(α-1)) = 1 + … + α^{k-2}."""
    powers, terms = np.ones_like(orders), []
    for place in range(2, 2 + _TERMS):
        terms.append(powers * (2 / math.factorial(place)))
        powers = 1 + orders * powers
    total = np.zeros_like(loss)
    for term in reversed(terms):
        total = term + loss * total
    return np.log(orders * (orders - 1) / 2) + 2 * np.log(np.abs(loss)) + np.log(total)


# --- units ------------------------------------------------------------------------------------------------


def _unit_divergences(probability: float, mean: float, orders: np.ndarray, rows: int) -> np.ndarray:
    """Return the divergences of Σ_k b_k N(kμ, 1) and Σ_k b_k N(-kμ, 1), b = Bin(r, q), rounded up.

    **Theorem.** This pair dominates a step for units of r rows (Ganesh 2024 has it for a unit added or removed).
    Proof. Given the other rows, P = Σ_S b_S N(θ_S, I) over the sets S of drawn rows of the unit, Q the same with
    θ'_S; θ_∅ = θ'_∅ = 0 and ‖θ_S‖, ‖θ'_S‖ ≤ |S|μ. With z_i the densities relative to N(0, I), log-normal of mean 1,
    H_γ + γ = E F(z), F = γB + (A - γB)₊, A = b_∅ + Σ b_S z_S, B = b_∅ + Σ b_S z'_S. Along a straight path of Gram
    matrices K of the θ_S, θ'_S it changes by ½ Σ_ij K'_ij E[z_i z_j ∂_ijF] (Kahane 1986), and ∂_ijF = ℓ_iℓ_j·(a
    measure ≥ 0), ℓ = b_S for θ_S, -γb_S for θ'_S: it rises in K_ij within A and within B, and falls between them.
    All are at their bounds, |S||T|μ² and -|S||T|μ², for θ_S = |S|μe = -θ'_S: H_γ is largest there, for all γ ≥ 0. ∎
    """
    logs = _log_binomial(rows, probability)
    bounds = _unit_closed_forms(logs, mean, orders)
    if mean > _LARGEST:
        return bounds
    growth = (orders - 1) * (mean * mean * rows / 2)
    widths = np.minimum(_STEP / np.sqrt(1 + growth), _UNIT_STRIP / mean)
    reach = rows * mean
    farthest = (np.maximum(orders, 3.0) + _drift(logs, mean, orders)) * reach + _REACH
    below = np.ceil((3 * reach + _REACH) / widths).astype(int)
    above = np.ceil(np.minimum(farthest / widths, 4.0 * _POINTS)).astype(int)
    for those in _parts(below + above + 1):
        integrals = _trapezoid(
            orders[those], below[those], above[those], widths[those], lambda x, order: _unit_pair(logs, mean, x, order)
        )
        bounds[those] = np.minimum(bounds[those], _softplus(integrals) / (orders[those] - 1) * _ROOM)
    return bounds


def _log_binomial(rows: int, probability: float) -> np.ndarray:
    """Return the logarithms of the probabilities of Bin(r, q), shape (r + 1,)."""
    odds = math.log(probability) - math.log1p(-probability)
    whole = math.lgamma(rows + 1) + rows * math.log1p(-probability)
    return np.array([whole - math.lgamma(k + 1) - math.lgamma(rows - k + 1) + k * odds for k in range(rows + 1)])


def _unit_closed_forms(logs: np.ndarray, mean: float, orders: np.ndarray) -> np.ndarray:
    """Return the minimum of two upper bounds, by the proof of `_closed_forms` with the r + 1 sizes of a sample."""
    squares = (np.arange(len(logs)) * mean) ** 2
    norms = orders / (orders - 1) * _log_mean(logs, (orders - 1)[:, None] * squares / 2) - logs[0]
    coupled = _log_mean(logs, (2 * orders * (orders - 1))[:, None] * squares) / (orders - 1)
    return np.minimum(norms, coupled) * _ROOM


def _log_mean(logs: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return ln Σ_k b_k e^x_k for x_k ≥ 0, without overflow, and without cancellation near 0; exponents (K, r + 1)."""
    with np.errstate(divide="ignore"):
        gaps = exponents + np.log(-np.expm1(-exponents))
    return np.logaddexp(0.0, _log_sum(logs[:, None] + gaps.T))


def _log_sum(logs: np.ndarray) -> np.ndarray:
    """Return the logarithm of the sum over the first axis of e^logs."""
    largest = np.maximum(logs.max(axis=0), -1e300)
    return largest + np.log(np.exp(logs - largest).sum(axis=0))


def _drift(logs: np.ndarray, mean: float, orders: np.ndarray) -> np.ndarray:
    """Return (α - 1)m/(rμ), m = (ln A)' at -αrμ: so much further than αrμ may the peak of the integrand be."""
    sizes = np.arange(len(logs))
    tilted = logs - (sizes * mean) ** 2 / 2 - np.outer(orders * (len(logs) - 1) * mean, sizes * mean)
    weights = np.exp(tilted - tilted.max(axis=1, keepdims=True))
    return (orders - 1) * (weights @ sizes) / weights.sum(axis=1) / (len(logs) - 1)


def _unit_pair(logs: np.ndarray, mean: float, x: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return `_pair` of a unit: ln B((A/B)^α - 1 - α(A/B - 1)), A = Σ_k b_k e^(kμx - k²μ²/2), B the same at -x.

    The rule errs by e^(y²/2 + s - 2πy/h) of its integral for any y < π/μ. Proof. |A(x + iy)| ≤ A(x); the coefficients
    of (1 - q + qw)^r times e^(-k²μ²/2) are those of a polynomial with r zeros w < 0 (Pólya & Schur 1914), so that
    |B(x + iy)| ≥ B(x)·cos(μy/2)^r. So s = -r(α - 1)ln cos(μy/2) ≤ 0.14·r(α - 1)μ²y² for μy ≤ 1.6. At
    y = min(1.6/μ, 2π/h(1 + g)), g = r(α - 1)μ²/2, the exponent is at most -πy/h: -1.6π/0.1, or -π²·2/0.16. ∎
    """
    sizes = np.arange(len(logs))[:, None]
    shifts, distance = sizes * mean, np.abs(x)
    terms = logs[:, None] - shifts * shifts / 2
    less = _log_sum(terms - shifts * distance)
    with np.errstate(divide="ignore"):
        more = _log_sum(terms + shifts * distance + np.log(-np.expm1(-2 * shifts * distance)))
    ratio = np.logaddexp(0.0, more - less)
    return less + np.where(x < 0, ratio, 0.0) + _log_gap(np.copysign(ratio, x), orders)


def _softplus(logs: np.ndarray) -> np.ndarray:
    """Return ln(1 + e^x), without overflow, and without cancellation for small e^x."""
    return np.maximum(logs, 0.0) + np.log1p(np.exp(-np.abs(logs)))
