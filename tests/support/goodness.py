"""Goodness of fit of a sample of noise to a law: two-sided chi-square over bins."""

from collections.abc import Callable

import numpy as np
from scipy import stats

ALPHA = 1e-9  # false alarms per test; no seed
BINS = 30


def p_value(counts, probabilities):
    """Return the two-sided p-value of counts: small if they are too far from the expected ones, or too near."""
    expected = np.asarray(probabilities) * (np.sum(counts) / np.sum(probabilities))
    statistic, upper = stats.chisquare(counts, expected)
    return 2 * min(upper, stats.chi2.cdf(statistic, len(counts) - 1))


def of_integers(sample, log_weight: Callable[[np.ndarray], np.ndarray], reach: int):
    """Return the p-value of integers k with P(k) ∝ exp(log_weight(k)), negligible beyond ±reach."""
    values = np.arange(-reach, reach + 1)
    probabilities = np.exp(log_weight(values))
    probabilities /= probabilities.sum()
    frequent = np.abs(values[np.cumsum(probabilities) * len(sample) < 20]).min() - 1
    low, high = -frequent, frequent
    binned = np.bincount(np.clip(values, low, high) - low, probabilities)
    return p_value(np.bincount(np.clip(sample, low, high) - low, minlength=len(binned)), binned)


def of_reals(sample, law):
    """Return the p-value of a continuous law, by bins of equal probability."""
    return p_value(np.bincount((law.cdf(sample) * BINS).astype(int).clip(0, BINS - 1), minlength=BINS), np.ones(BINS))


def of_cells(counts, probabilities):
    """p-value of counts, with cells that hardly ever occur taken together."""
    cells = np.where(probabilities * np.sum(counts) >= 20, np.arange(1, len(counts) + 1), 0)
    cells = np.unique(cells, return_inverse=True)[1]
    return p_value(np.bincount(cells, counts), np.bincount(cells, probabilities))


def of_two(one, other):
    """p-value of two samples of integers being of one law."""
    values, places = np.unique(np.concatenate([one, other]), return_inverse=True)
    table = np.array([np.bincount(part, minlength=len(values)) for part in np.split(places, [len(one)])])
    order = np.cumsum(table.sum(axis=0)) * BINS // table.sum()  # some thirty bins of about equal weight
    binned = np.array([np.bincount(order, row) for row in table])
    return float(stats.chi2_contingency(binned[:, binned.sum(axis=0) > 0]).pvalue)
