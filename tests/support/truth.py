"""The exact δ of many releases: the law of the sum of their privacy losses under the worst neighbours, by FFT."""

import math

import numpy as np
from scipy import special, stats

STEP = 1e-4  # of the grid of losses
LIMIT = 20.0  # of one loss: more have less than 1e-15


def losses_of(loss, weights):
    """Probabilities of losses on the grid; each is split between its neighbours, so that the mean stays."""
    places = (np.clip(loss, -LIMIT, LIMIT) + LIMIT) / STEP
    below, size = np.floor(places).astype(int), round(2 * LIMIT / STEP) + 2
    above = places - below
    whole = np.bincount(below, weights * (1 - above), size) + np.bincount(below + 1, weights * above, size)
    return whole / weights.sum()


def gaussian(mean):
    """N(μ, 1) against N(0, 1)."""
    x = np.linspace(-12, 12, 24001)
    return losses_of(mean**2 / 2 + mean * x, stats.norm.pdf(x))


def sampled_gaussian(probability, multiplier, rows=1):
    """Σ_k Bin(r, q)(k) N(kμ, 1) against its mirror image, μ = 1/multiplier."""
    sizes = np.arange(rows + 1)[:, None]
    shares = stats.binom.pmf(sizes, rows, probability)
    x = np.linspace(-12 - rows / multiplier, 12 + rows / multiplier, 24001)
    near, far = (
        special.logsumexp(stats.norm.logpdf(x, sign * sizes / multiplier), b=shares, axis=0) for sign in (1, -1)
    )
    return losses_of(near - far, np.exp(near))


def spherical(epsilon, dimension):
    """A density ∝ e^(-‖z‖) against itself moved by ε, by the radius and the cosine z₁/‖z‖, of a Beta law."""
    quantiles = (np.arange(2000) + 0.5) / 2000
    radius = stats.gamma(dimension).ppf(quantiles)[:, None]
    cosine = 2 * stats.beta((dimension - 1) / 2, (dimension - 1) / 2).ppf(quantiles)[None] - 1
    loss = np.sqrt(radius**2 + 2 * radius * epsilon * cosine + epsilon**2) - radius
    return losses_of(loss.ravel(), np.ones(loss.size))


def randomised_response(epsilon):
    """A discrete Laplace count that moves by one: its loss is ε or -ε."""
    return losses_of(np.array([epsilon, -epsilon]), np.array([1.0, math.exp(-epsilon)]))


def delta_of(spectrum, epsilon, times):
    """δ(ε) of so many repetitions of a year, from the Fourier transform of the law of its losses around 0."""
    law = np.fft.irfft(spectrum**times)
    size = len(law)
    loss = (np.arange(size) - size * (np.arange(size) > size // 2)) * STEP
    return float(np.sum(law * np.maximum(-np.expm1(np.minimum(epsilon - loss, 0.0)), 0.0)))


def spectrum_of(year):
    """The transform of a year: pairs of a count and the law of a release's losses."""
    size, product = 1 << 20, 1.0
    for count, law in year:
        centred = np.zeros(size)
        centred[(np.arange(len(law)) - round(LIMIT / STEP)) % size] = law
        product = product * np.fft.rfft(centred) ** count
    return product


def years(year, epsilon, delta):
    """How many times a year fits (ε, δ), with the last one in part, by the logarithm of δ."""
    spectrum = spectrum_of(year)
    most = 1
    while delta_of(spectrum, epsilon, 2 * most) <= delta:
        most *= 2
    low, high = (0, 1) if delta_of(spectrum, epsilon, most) > delta else (most, 2 * most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if delta_of(spectrum, epsilon, middle) <= delta else (low, middle)
    below, above = (math.log(max(delta_of(spectrum, epsilon, n), 1e-300)) if n else -math.inf for n in (low, high))
    return low + (math.log(delta) - below) / (above - below) if low else math.nan
