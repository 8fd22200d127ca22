"""Exact curves of spherical Laplace noise and of selections, and of objectives with noise, in ball arithmetic.

privacy.md §2, §7, §13. Results are upper bounds: a ball's upper end, rounded up; infinite where the balls
are too wide to be of use.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_MOST_EPSILON = 300.0
_BITS = (128, 1024)  # the second where the balls of the first are not finite
_ROOM = 1 + 1e-12  # of closed forms in floating point
_LARGEST = 1000.0  # αε, above which Struve's series are long, and a pure ε is hardly more


@lru_cache(maxsize=256)
def spherical_divergence(epsilon: float, dimension: int, order: float) -> float:
    """Return the Rényi divergence of order α of a density ∝ e^(-‖z‖/b) on ℝᵈ and itself shifted by up to bε.

    Both ways, for all shifts: privacy.md §2 (v).
    Proof. *Every f-divergence rises in the shift.* On each line along the shift the density is log-concave, so that
    the likelihood ratio rises: {p_t > γp_0} is a half-line x > x*, and p_u, u > t, has no less mass there, so that
    ∫(p_u - γp_0)₊ ≥ ∫(p_t - γp_0)₊. *At ‖s‖ = ε, b = 1*: r₁ = ‖z‖, r₂ = ‖z - s‖, εξ = r₁ + r₂, εη = r₁ - r₂, the loss,
    dz ∝ (ξ² - η²)((ξ² - 1)(1 - η²))^((d-3)/2) dξdη, and p^α q^(1-α) ∝ e^(-κξ + λη), κ = ε/2, λ = (α - ½)ε. As
    ξ² - η² = (ξ² - 1) + (1 - η²), that is two products of integrals, of K and I, with ν = d/2 - 1:
    e^((α-1)D_α) = κ(κ/λ)^ν [K_{ν+1}(κ)I_ν(λ) + (κ/λ)K_ν(κ)I_{ν+1}(λ)]; the Wronskian makes it 1 at α = 1. d = 1 is
    the curve of Laplace noise, and so follows too. ∎
    """
    return _upper(lambda: _moment(epsilon, dimension, order)[0].log() / (_ball(order) - 1))


def spherical_concentration(epsilon: float, dimension: int) -> float:
    """Return the least ρ with D_α ≤ αρ for every α > 1 of `spherical_divergence`: its limit at α = 1.

    Proof. (α-1)D_α = F(λ²) - F(κ²), F(λ²) = ln λ^(-ν)[aI_ν(λ) + bI_{ν+1}(λ)/λ] with a, b > 0, and
    λ² - κ² = ε²α(α-1): it is enough that F is concave. e^F is entire in x = λ², of order ½. At x = -y it is 0 where
    a + bJ_{ν+1}(√y)/(√y J_ν(√y)) = 0, that is Σ_k 2/(j_k² - y) = -a/b, j_k the zeros of J_ν. Off the real line the
    sum's imaginary part has the sign of y's, and for y < j_1² it is positive: all zeros are real, y_k > 0. So
    e^F = e^F(0) Π(1 + x/y_k), and F is a sum of concave functions. The limit is the mean of the loss,
    (ε²/2)[K_{ν+1}I_{ν+1} + K_νI_{ν+2}](κ), by (λ^(-ν)I_ν)' = λ^(-ν)I_{ν+1}. ∎ (d = 1: cosh and sinh in place of I.)
    """

    def mean() -> Any:
        order, kappa = _ball(dimension) / 2 - 1, _ball(epsilon) / 2
        near, far = kappa.bessel_k(order + 1), kappa.bessel_k(order)
        return 2 * kappa**2 * (near * kappa.bessel_i(order + 1) + far * kappa.bessel_i(order + 2))

    return _upper(mean)


@lru_cache(maxsize=256)
def spherical_gaussian_square(epsilon: float, dimension: int) -> float:
    """Return the least μ² for which spherical Laplace noise is as private as N(μ, 1); ∞ for d = 2 or ε above 300.

    μ is that of the same total variation, κ[K_{ν+1}L_ν + K_νL_{ν+1}](κ), L Struve's functions.
    Proof. With equal total variation let U(c) = e^(-c/2)·(the difference of the two ∫(p - e^c q)₊), c ≥ 0; for c < 0
    both pairs are their mirror images. U'' - U/4 = D, the difference of the densities of the loss under √(pq):
    U(0) = 0, U'(0) = 0 as both pairs have mass 1, and U, U' → 0. If U changes sign k times, e^(c/2)U has k + 3 zeros, 0
    twice and ∞ among them; (e^(c/2)U)' so has k + 2, and D = e^(c/2)(e^(-c)(e^(c/2)U)')' changes sign k + 2 times at
    least. Up to c = ε the log of the densities' ratio is concave in c²: (ν - ½)ln(1 - η²) + ln(a + b - bη²) plus
    multiples of η², for d ≥ 3; for d = 1 it rises, to an atom at ε. Beyond ε there is only the Gaussian. So D has at
    most the signs -, +, -: k = 0, and U < 0. ∎ d = 2 has no proof, as (1 - η²)^(-½) is not log-concave.
    """
    if dimension == 2 or epsilon > _MOST_EPSILON:  # Arb's inverse error function takes half a minute there
        return math.inf
    return _upper(lambda: 8 * _moment(epsilon, dimension, 1.0)[1].erfinv() ** 2)


@lru_cache(maxsize=256)
def spherical_gain(epsilons: tuple[float, ...], dimension: int, order: float) -> float:
    """Return ln(1 + Σ E(e^((α-1)ℓ) - 1)₊), ℓ the privacy losses of `spherical_divergence` at each ε.

    Proof. A loss is positive where η > 0, and the integral over that half is the mean of those of I and L. It is an
    f-divergence, of (r^α - r)₊, which is convex, and so rises in the shift. ∎
    """
    if order * max(epsilons) > _LARGEST:
        return math.inf

    def excess(epsilon: float) -> Any:
        moments = [sum(_moment(epsilon, dimension, each), start=_ball(0.0)) for each in (order, 1.0)]
        return (moments[0] - moments[1]) / 2

    return _upper(lambda: sum(map(excess, epsilons), start=_ball(0.0)).log1p())


def gaussian_gain(means: tuple[float, ...], order: float) -> float:
    """Return ln(1 + Σ E(e^((α-1)ℓ) - 1)₊), ℓ ~ N(μ²/2, μ²): E is e^(α(α-1)μ²/2)Φ((α-½)μ) - Φ(μ/2)."""

    def excess(mean: float) -> Any:
        m, a, root = _ball(mean), _ball(order), -(_ball(2.0).sqrt())
        return ((a * (a - 1) * m**2 / 2).exp() * ((a - 0.5) * m / root).erfc() - (m / 2 / root).erfc()) / 2

    return _upper(lambda: sum(map(excess, means), start=_ball(0.0)).log1p())


@lru_cache(maxsize=256)
def range_divergence(epsilon: float, order: float) -> float:
    """Return the largest Rényi divergence of order α of a privacy loss that lies in an interval of length ε (§13).

    Proof. E_Q e^(αZ) is of a convex function of e^Z, whose mean is 1: for an interval [t, t + ε] it is largest for
    a Z that is t or t + ε, with Q(t + ε) = q, e^(-t) = 1 - q + qe^ε: (α-1)D_α = ln(1 + qa) - α ln(1 + qb),
    a = e^(αε) - 1, b = e^ε - 1. This is 0 at q = 0 and 1, and stationary at q = (a - αb)/((α-1)ab) alone, where
    1 + qa = (a-b)/((α-1)b), 1 + qb = α(a-b)/((α-1)a). ∎ It is the curve of Dong, Durfee & Rogers 2020.
    """

    def largest() -> Any:
        o, e = _ball(order), _ball(epsilon)
        a, b = (o * e).expm1(), e.expm1()
        gap = (a - b) / (o - 1)
        return ((gap / b).log() - o * (o * gap / a).log()) / (o - 1)

    return _upper(largest)


def range_concentration(epsilon: float) -> float:
    """Return 4 ln cosh(ε/4) ≤ ε²/8: D_α ≤ α times this for every α > 1, of a loss in an interval of length ε.

    Proof. In `range_divergence` let g(x) = ln(1 + e^x), θ = ln(q/(1-q)): (α-1)D_α = g(θ+αε) - g(θ) - α(g(θ+ε) - g(θ)),
    so that D_α/α = ε²g[θ, θ+ε, θ+αε], a divided difference: (ε²/2)∫g''B, B the hat with these knots. g'' is even and
    falls in |x|, and of all hats on a base of length αε the one with its peak at 0 has the most mass between ±r, for
    every r; it has less for a longer base. So α = 1, θ = -ε/2, peak 0 is a bound: 2(g(ε/2) - 2g(0) + g(-ε/2)). ∎
    """
    return 4 * (math.log1p(2 * math.sinh(epsilon / 8) ** 2) if epsilon < 4 else _log_cosh(epsilon / 4)) * _ROOM


def perturbed_divergence(mean: float, curvature: float, outputs: int, order: float) -> float:
    """Return a bound on D_α of a minimum perturbed by Gaussian noise, infinite if (α-1)κ ≥ 1 (privacy.md §7).

    μ = 2L/σ, κ = c/(nΛ) for each of K models: D_α ≤ αμ²/2 - (K/(α-1)) ln(1 - α(α-1)κ²/(1+κ)).
    Proof. p = ν(b)|H|, q = ν(b')|H'| with b, b' the noise that leads to f in either world, H = -∂b/∂f. As ν is
    Gaussian, ν(b)^α ν(b')^(1-α) = ν(u)e^(α(α-1)‖b-b'‖²/2σ²), u = αb - (α-1)b'. -u is the gradient of a function of f
    of curvature αH - (α-1)H' ⪰ nΛ - (α-1)c > 0: f ↦ u is one to one, and ∫p^α q^(1-α) is the mean over u ~ ν of
    e^(α(α-1)‖b-b'‖²/2σ²) |H|^α |H'|^(1-α)/|αH - (α-1)H'|. There ‖b - b'‖ ≤ 2L; and, in coordinates where a block of
    Λ and the n - 1 shared rows is I, H = I + xvvᵀ, H' = I + x'v'v'ᵀ, 0 ≤ x, x' ≤ κ, |v| = |v'| = 1: the
    determinants are 1 + x, 1 + x' and at least (1 + αx)(1 - (α-1)x'), and the quotient, which rises in x and x', is
    at most (1+κ)/((1+ακ)(1-(α-1)κ)) = 1/(1 - α(α-1)κ²/(1+κ)). ∎
    """
    product = order * (order - 1) * curvature**2 / (1 + curvature) * _ROOM
    if (order - 1) * curvature * _ROOM >= 1 or product >= 1:
        return math.inf
    return (order * mean**2 / 2 - outputs / (order - 1) * math.log1p(-product)) * _ROOM


def corner_divergence(gain: float, curvature: float, outputs: int, order: float) -> float:
    """Return K(ln(1+κ) + gain/(α-1)), a bound on D_α of K models; the gain of one is ln(1 + Σ_S E(e^((α-1)ℓ_S) - 1)₊).

    Proof (privacy.md §7). The determinants differ by a factor of at most 1 + κ for each model. What is left of the
    loss is convex in the slopes of the two rows, each of which lies in an interval: it is at most max_S ℓ_S over the
    corners, in each of which the shift is fixed, and e^((α-1)max ℓ_S) ≤ 1 + Σ_S (e^((α-1)ℓ_S) - 1)₊. The noise of K
    models is independent, if it is Gaussian, and their losses add up: the mean is a product. ∎
    """
    return outputs * (math.log1p(curvature) + gain / (order - 1)) * _ROOM


def perturbed_concentration(square: float, curvature: float, outputs: int, corners: int) -> float:
    """Return ρ with D_α ≤ αρ for every α > 1 of a minimum perturbed by Gaussian noise, of μ² = `square` for all models.

    Proof. Up to an order a `perturbed_divergence` holds, above it `corner_divergence`. Of the first, -ln(1 - yt)/y
    rises in y = α(α-1), so that a is the worst. Of the second, with M corners of one model, the mean of
    e^((α-1)ℓ_S) at most e^(α(α-1)μ_S²/2) and Kμ_S² ≤ μ²: D_α/α ≤ μ²/2 + K(ln(1+κ)/α + ln(1+M)/y), which falls. Any a
    will do; the least of a hundred is returned. ∎
    """

    def worse(order: float) -> float:
        product = order * (order - 1)
        near = perturbed_divergence(0.0, curvature, outputs, order) / order
        return max(near, outputs * (math.log1p(curvature) / order + math.log1p(corners) / product))

    orders = (1 + 10 ** (step / 10) for step in range(-20, 80))
    return (square / 2 + min(map(worse, orders))) * _ROOM


def _moment(epsilon: float, dimension: int, order: float) -> tuple[Any, Any]:
    """Return E e^((α-1)ℓ), and the mean of that times the sign of ℓ, for a shift of ε (`spherical_divergence`).

    The second has Struve's L in place of I: the sinh of an integral over (0, 1) in place of the cosh.
    """
    nu, kappa = _ball(dimension) / 2 - 1, _ball(epsilon) / 2
    at = (_ball(order) - 0.5) * _ball(epsilon)
    weights = kappa.bessel_k(nu + 1), kappa.bessel_k(nu) * kappa / at
    scale = kappa * (kappa / at) ** nu
    even = weights[0] * at.bessel_i(nu) + weights[1] * at.bessel_i(nu + 1)
    odd = weights[0] * _struve(nu, at) + weights[1] * _struve(nu + 1, at)
    return scale * even, scale * odd


def _struve(nu: Any, at: Any) -> Any:
    """Return Struve's modified function L_ν, by its series."""
    first = (at / 2) ** (nu + 1) / (_ball(1.5).gamma() * (nu + 1.5).gamma())
    return first * (at * at / 4).hypgeom([1], [_ball(1.5), nu + 1.5])


def _ball(value: float) -> Any:
    from flint import arb  # imported when first needed: a server that only predicts does not need it

    return arb(value)


def _upper(compute: Callable[[], Any]) -> float:
    """Return a float at or above every number of a ball, computed more precisely if it is not finite or wide."""
    from dbdp.privacy.noise.balls import precision

    for bits in _BITS:
        with precision(bits):
            ball = compute()
            if ball.is_finite() and ball.rel_accuracy_bits() > 40:
                return math.nextafter(float(ball.upper()), math.inf)
    return math.inf


def _log_cosh(x: float) -> float:
    return x + math.log1p(math.exp(-2 * x)) - math.log(2)
