"""Textbook formulas of the losses, in the caller's precision."""

import mpmath


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
