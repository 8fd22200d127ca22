"""The privacy loss distribution of many Poisson-sampled Gaussian steps, with every rounding upward.

For a release that stands alone: δ(ε) is nearly exact, where the Rényi curve of `subsampling` needs some 5 to
12 % more noise in long runs, and half as much again or more if a row is in few mini-batches and large losses are
rare. A ledger in mode `renyi` charges that curve all the same (privacy.md §13). Neighbours are replace-one, the
pair is (1-q)N(0, 1) + qN(±μ, 1), μ = 1/multiplier.
Shapes: cells of the loss are (K,), a window of its sum (N,).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.subsampling import poisson_gaussian_divergence, poisson_gaussian_multiplier

_NODES = np.array([-0.8611363115940526, -0.33998104358485626, 0.33998104358485626, 0.8611363115940526])
_WEIGHTS = np.array([0.34785484513745385, 0.6521451548625461, 0.6521451548625461, 0.34785484513745385]) / 2  # Gauss
_MESH = 0.02  # longest interval of a Gauss rule, in error by less than 1e-10
_COARSE = 0.01  # θ²Tw²: widening the losses raises δ by less than that
_FINER = 4  # for rare, large losses θ is much less than ε/variance, its value for a normal sum
_BEYOND = 1e-8  # approximate share of δ for losses that are too large for the grid
_DEVIATIONS, _TILTS = 8.0, 40.0  # half the window, in standard deviations of the sum and in 1/θ
_ROUNDOFF = 10 * 2.0**-53  # bounds the error of a butterfly of an FFT, and of a power for each factor
_PRECISION = 1e-4  # of a multiplier
_GRID = 1 << 24  # multipliers that are tried have 24 significant bits
_LEAST = 1 / 8  # and at least this: below it losses need too large a grid
_ORDERS = [1 + math.exp(step / 4) for step in range(-16, 48)]
_TARGET = 1 - 1e-9  # of δ (§14.5)
_MOST_CELLS = 1 << 21  # of a loss, and of a window: 100 MB are enough for them


class _TooLargeError(Exception):
    """A grid beyond _MOST_CELLS."""


@dataclass(frozen=True)
class _Losses:
    """The loss of one step under P: `masses[i]` at (first + i) × width, and `beyond` at infinity."""

    masses: np.ndarray
    first: int
    width: float
    beyond: float

    @property
    def places(self) -> np.ndarray:
        """Positions of the masses on the grid, in widths, shape (K,)."""
        return self.first + np.arange(len(self.masses))

    def tilted(self, tilt: float) -> tuple[np.ndarray, float]:
        """Return masses ∝ p(s)e^{θs} that add up to 1, shape (K,), and ln M."""
        logs = np.log(np.maximum(self.masses, 1e-320)) + tilt * self.width * self.places
        weights = np.exp(logs - logs.max())
        return weights / weights.sum(), float(logs.max() + math.log(weights.sum()))


def poisson_gaussian_delta(epsilon: float, probability: float, multiplier: float, steps: int) -> float:
    """Return an upper bound on δ(ε) of `steps` steps, about one per cent too large; 1 if the grid would be too large.

    Proof. The pair dominates (`poisson_gaussian_divergence`), and its mirror image is itself: one direction
    suffices, and δ(ε) = E_P(1 - e^{ε-S})₊, S the sum of T independent losses. `_losses` spreads each loss to
    the ends of its cell, P and Q both preserved, which only raises every hockey-stick divergence. With
    f(s) ∝ p(s)e^{θs}, M the sum of p e^{θs}: δ = M^T e^{-θε} Σ_{s>ε} (1 - e^{ε-s}) e^{-θ(s-ε)} f^{*T}(s), so that
    errors of f^{*T} count relative to a Chernoff bound on δ; θ = α - 1 of the best Rényi order. `_composed`
    adds mass to the window's sums, never less, but for sums above it, worth at most e^{-θ(top-ε)}. ∎
    """
    tilt, log_bound = _tilt(epsilon, probability, multiplier, steps)
    variance = steps * poisson_gaussian_divergence(probability, multiplier, 2.0)  # of the sum, about
    width = math.sqrt(_COARSE / steps) / max(tilt, min(_FINER * tilt, epsilon / variance))
    try:
        losses = _losses(probability, 1 / multiplier, width, max(math.exp(log_bound) * _BEYOND / steps, 1e-300))
        tilted, log_norm = losses.tilted(tilt)
        gaps, summed, error = _composed(losses, tilted, tilt=tilt, epsilon=epsilon, steps=steps)
    except _TooLargeError:
        return 1.0
    weights = -np.expm1(-gaps) * np.exp(-tilt * gaps)
    missed = error * math.sqrt(np.sum(weights**2)) + math.exp(-tilt * gaps[-1])
    room = steps * (1e-12 + tilt * 1e-15 * (1 + width * len(tilted)))  # of M^T, and of the losses
    scale = math.exp(min(steps * log_norm - tilt * epsilon + room, 700.0))
    return min(steps * losses.beyond + scale * (float(np.sum(weights * summed)) + missed), 1.0) * (1 + 1e-9)


def _tilt(epsilon: float, probability: float, multiplier: float, steps: int) -> tuple[float, float]:
    """Return θ = α - 1 of the least Chernoff bound e^{θ(T·D_α - ε)} on δ, and the bound's logarithm.

    No less than one over ε, or over the standard deviation of the sum, about: widths are in units of 1/θ.
    """
    bounds = [
        ((order - 1) * (steps * poisson_gaussian_divergence(probability, multiplier, order) - epsilon), order - 1)
        for order in _ORDERS
    ]
    log_bound, tilt = min(bounds)
    deviation = math.sqrt(steps * poisson_gaussian_divergence(probability, multiplier, 2.0))
    return max(tilt, 1 / max(deviation, epsilon)), min(log_bound, 0.0)


def _losses(probability: float, mean: float, width: float, beyond: float) -> _Losses:
    """Return the losses of P = (1-q)N(0, 1) + qN(μ, 1) against its mirror image, rounded up to a grid.

    Of a cell's mass at loss kw + t, the part (1 - e^{-t})/(1 - e^{-w}) goes to its upper end: then P and Q have
    the same mass as before, with likelihood ratios further apart (Doroshenko et al. 2022). About `beyond` of P
    has larger losses, and is counted at infinity; mass below the grid is moved up to its lowest point.
    """
    reach = mean + math.sqrt(2 * math.log(1 / beyond))
    x, share = _nodes(probability, mean, width, reach)
    loss = _loss(probability, mean, x)
    cells = np.floor(loss.reshape(-1, len(_NODES)).mean(axis=1) / width).astype(np.int64).repeat(len(_NODES))
    upper = np.clip(np.expm1(cells * width - loss) / math.expm1(-width), 0.0, 1.0)
    first, count = int(cells[0]), int(cells[-1] - cells[0]) + 2
    masses = np.bincount(cells - first, share * (1 - upper), count) + np.bincount(
        cells - first + 1, share * upper, count
    )
    masses[1] += _tail(probability, -mean, reach)
    return _Losses(masses, first, width, _tail(probability, mean, reach))


def _tail(probability: float, mean: float, x: float) -> float:
    """Return P(X > x) for X of law (1-q)N(0, 1) + qN(μ, 1)."""
    root = math.sqrt(2)
    return ((1 - probability) * math.erfc(x / root) + probability * math.erfc((x - mean) / root)) / 2


def _loss(probability: float, mean: float, x: np.ndarray) -> np.ndarray:
    """Return ln A/B, A, B = 1 - q + qe^{±μx-μ²/2}."""
    damped, distance = probability * math.exp(-mean * mean / 2), np.abs(x)
    less = (1 - probability) + damped * np.exp(-mean * distance)
    return np.copysign(np.log1p(2 * damped * np.sinh(mean * distance) / less), x)


def _nodes(probability: float, mean: float, width: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the points and masses of Gauss rules between -reach and reach, each within one cell of the loss.

    The loss is l where sinh(μx - l/2) = sinh(l/2)(1-q)/(qe^{-μ²/2}).
    """
    last = math.floor(float(_loss(probability, mean, np.array([reach]))[0]) / width)
    if 2 * last > _MOST_CELLS:
        raise _TooLargeError
    halves = width * np.arange(-last, last + 1) / 2
    odds = probability * math.exp(-mean * mean / 2) / (1 - probability)
    ends = (halves + np.arcsinh(np.sinh(halves) / odds)) / mean
    even = np.linspace(-reach, reach, math.ceil(2 * reach / min(_MESH, _MESH / mean)) + 1)
    edges = np.unique(np.concatenate([even, ends[np.abs(ends) < reach]]))
    lengths = np.diff(edges)
    x = ((edges[1:] + edges[:-1])[:, None] + lengths[:, None] * _NODES).ravel() / 2
    density = (1 - probability) * np.exp(-x * x / 2) + probability * np.exp(-((x - mean) ** 2) / 2)
    return x, density / math.sqrt(2 * math.pi) * (lengths[:, None] * _WEIGHTS).ravel()


def _composed(
    losses: _Losses, tilted: np.ndarray, *, tilt: float, epsilon: float, steps: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return s - ε > 0 for a window, the mass of the sum of T tilted losses there, both (N,), and an error's norm.

    All sums beyond the circle of N places are folded in. Every entry of the transform f̂ is off by at most
    r = c·u·log₂N, as every butterfly adds relative to its part of Σf = 1; the power by T·r(|f̂| + r)^{T-1} and
    its own roundoff; the norm of the inverse is 1/√N of that.
    """
    places, width = losses.places, losses.width
    variance = float(np.sum(tilted * (places - np.sum(tilted * places)) ** 2))
    needed = max(_DEVIATIONS * math.sqrt(steps * variance), _TILTS / (tilt * width))
    length = 1 << math.ceil(math.log2(2 * needed))
    if length > _MOST_CELLS:
        raise _TooLargeError
    transformed = np.fft.rfft(np.bincount(places % length, tilted, length))
    size, roundoff = np.abs(transformed), _ROUNDOFF * math.log2(length)
    summed = np.fft.irfft(size**steps * np.exp(1j * steps * np.angle(transformed)), length)
    norm = math.sqrt(2 * float(np.sum((size + roundoff) ** (2 * (steps - 1)))) / length)
    sums = math.floor(epsilon / width) + 1 + np.arange(length // 2)
    return sums * width - epsilon, summed[sums % length], 2 * (steps + 1) * roundoff * norm


def poisson_gaussian_pld_multiplier(epsilon: float, delta: float, probability: float, steps: int) -> float:
    """Return the least σ/C, to 10⁻⁴ and from 1/8, at which `steps` steps are (ε, δ)-DP by their privacy losses.

    Proof. `poisson_gaussian_delta` at the multiplier that is returned is at most δ, or it is the one of the
    Rényi curve; with q = 1 the steps are one Gaussian of sensitivity 2C√T. The search is by secants of
    ln δ against ln(σ/C), which is nearly straight.
    """
    high = poisson_gaussian_multiplier(epsilon, delta, probability, steps)
    if probability == 1:
        return min(high, analytic_noise_multiplier(epsilon, delta) * 2 * math.sqrt(steps) * (1 + 1e-12))

    def excess(multiplier: float) -> float:
        return math.log(poisson_gaussian_delta(epsilon, probability, multiplier, steps) / (delta * _TARGET) + 1e-300)

    if high <= _LEAST or (above := excess(high)) > 0:
        return high  # the Rényi curve's: a loss distribution of usual size is not better
    low = max(high / 1.1, _LEAST)
    while (below := excess(low)) <= 0 and low > _LEAST:
        low, high, above = max(low / 1.2, _LEAST), low, below
    if below <= 0:
        return low
    return _between(excess, low, below, high, above)


def _between(excess: Callable[[float], float], low: float, below: float, high: float, above: float) -> float:
    """Return a multiplier that suffices, within _PRECISION of one that does not, from two such.

    Secants aim a little to the right, then a little to the left of the zero; every third step halves. They try
    multipliers of `_GRID` alone, so that the last bits of `excess`, which another processor may round otherwise,
    do not affect the result.
    """
    for shift in cycle((_PRECISION / 3, -_PRECISION / 3, None)):
        length = math.log(high / low)
        if length <= _PRECISION:
            return high
        step = length / 2 if shift is None else length * below / (below - above) + shift
        middle = _rounded(low * math.exp(min(max(step, _PRECISION / 3), length - _PRECISION / 3)))
        at_middle = excess(middle)
        if at_middle <= 0:
            high, above = middle, at_middle
        else:
            low, below = middle, at_middle
    raise AssertionError("the cycle has no end")


def _rounded(multiplier: float) -> float:
    """Return the nearest multiplier of 24 significant bits: it moves by less than a thousandth of _PRECISION."""
    mantissa, exponent = math.frexp(multiplier)
    return math.ldexp(round(mantissa * _GRID), exponent) / _GRID
