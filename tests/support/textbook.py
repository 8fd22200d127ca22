"""Textbook formulas: the losses, in the caller's precision, distances of laws, and the law of permute and flip."""

import itertools
import math

import mpmath
import numpy as np
from scipy import optimize, special


def literal(loss, score, label):
    """Return value and derivative by the textbook's formula."""
    score, label, weight = mpmath.mpf(score), mpmath.mpf(label), mpmath.mpf(loss.positive_weight if label > 0 else 1)
    margin, residual, size = label * score, score - label, abs(score - label)
    if loss.name == "logistic":
        return weight * mpmath.log1p(mpmath.exp(-margin)), -weight * label / (1 + mpmath.exp(margin))
    if loss.name == "huber_svm":
        h = mpmath.mpf(loss.width)
        if margin > 1 + h:
            return mpmath.mpf(0), mpmath.mpf(0)
        if margin < 1 - h:
            return weight * (1 - margin), -weight * label
        return weight * (1 + h - margin) ** 2 / (4 * h), -weight * label * (1 + h - margin) / (2 * h)
    limit = mpmath.mpf(loss.lipschitz)
    if size <= limit:
        return residual**2 / 2, residual
    return limit * (size - limit / 2), limit * mpmath.sign(residual)


def gaussian_delta(epsilon, mean):
    """Return δ(ε) = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ) of N(μ, 1) against N(0, 1), for arrays of μ too; 0 for μ = 0."""
    mean = np.asarray(mean, float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near, far = mean / 2 - epsilon / mean, -mean / 2 - epsilon / mean
        return np.where(mean > 0, np.exp(special.log_ndtr(near)) - np.exp(epsilon + special.log_ndtr(far)), 0.0)


def precise_gaussian_delta(epsilon, mean):
    """Return the same in the caller's precision, for one μ > 0."""
    epsilon, mean = mpmath.mpf(epsilon), mpmath.mpf(mean)
    return mpmath.ncdf(mean / 2 - epsilon / mean) - mpmath.exp(epsilon) * mpmath.ncdf(-mean / 2 - epsilon / mean)


def least_multiplier(epsilon, delta, mixture):
    """Return the least σ/Δ_max for a mixture of Gaussians of known positions, by SciPy's solver."""
    means = mixture.sensitivities / mixture.largest

    def excess(log):
        return math.log(max(float(mixture.shares @ gaussian_delta(epsilon, means / math.exp(log))), 1e-290) / delta)

    return math.exp(optimize.brentq(excess, math.log(1e-7), math.log(1e6), xtol=1e-13, rtol=1e-14))


def sampled_tail(probability, mean, x):
    """Return P(X > x) of (1-q)N(0, 1) + qN(μ, 1)."""
    return (1 - probability) * special.ndtr(-x) + probability * special.ndtr(mean - x)


def sampled_stick(probability, mean, log_gamma):
    """Return H_γ of (1-q)N(0, 1) + qN(±μ, 1): p/q rises in x, so that one threshold decides; it is within ±60."""

    def excess(x):
        up, down = (math.log(1 - probability + probability * math.exp(way * mean * x - mean**2 / 2)) for way in (1, -1))
        return up - down - log_gamma

    x = optimize.brentq(excess, -60, 60, xtol=1e-14) if excess(-60) * excess(60) < 0 else math.copysign(60, log_gamma)
    return sampled_tail(probability, mean, x) - math.exp(log_gamma) * sampled_tail(probability, -mean, x)


def renyi(p, q, order):
    """Return the Rényi divergence of two laws with the same zeros."""
    p, q = (law[(p > 0) & (q > 0)] for law in (p, q))
    return float(special.logsumexp(order * np.log(p) + (1 - order) * np.log(q))) / (order - 1)


def hockey_stick(p, q, epsilon):
    """Return the δ at which P is (ε, δ)-close to Q."""
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum())


def permute_and_flip(scores, epsilon):
    """Return the law of the choice, by summing over all orders of the candidates."""
    accepted = np.exp(epsilon * (np.array(scores) - max(scores)) / 2)
    law, count = np.zeros(len(scores)), math.factorial(len(scores))
    for order in itertools.permutations(range(len(scores))):
        reached = 1.0
        for candidate in order:
            law[candidate] += reached * accepted[candidate] / count
            reached *= 1 - accepted[candidate]
    return law
