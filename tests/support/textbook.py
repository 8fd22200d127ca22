"""Textbook formulas: the losses, in the caller's precision, and the δ of a Gaussian."""

import mpmath
import numpy as np
from scipy import special


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
