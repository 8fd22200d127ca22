"""How well a sample of noise fits a law: chi-square over bins, two-sided."""

from collections.abc import Callable

import numpy as np
from scipy import stats

ALPHA = 1e-9  # false alarms per test; no seed
BINS = 30


def p_value(counts, probabilities):
    """Neither too far from what is expected, nor too near to it."""
    expected = np.asarray(probabilities) * (np.sum(counts) / np.sum(probabilities))
    statistic, upper = stats.chisquare(counts, expected)
    return 2 * min(upper, stats.chi2.cdf(statistic, len(counts) - 1))


def of_integers(sample, log_weight: Callable[[np.ndarray], np.ndarray], reach: int):
    """p-value of integers k with P(k) ∝ exp(log_weight(k)), negligible beyond ±reach."""
    values = np.arange(-reach, reach + 1)
    probabilities = np.exp(log_weight(values))
    probabilities /= probabilities.sum()
    frequent = np.abs(values[np.cumsum(probabilities) * len(sample) < 20]).min() - 1
    low, high = -frequent, frequent
    binned = np.bincount(np.clip(values, low, high) - low, probabilities)
    return p_value(np.bincount(np.clip(sample, low, high) - low, minlength=len(binned)), binned)


def of_reals(sample, law):
    """p-value of a continuous law, by bins of equal probability."""
    return p_value(np.bincount((law.cdf(sample) * BINS).astype(int).clip(0, BINS - 1), minlength=BINS), np.ones(BINS))
