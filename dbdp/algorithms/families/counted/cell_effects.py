"""How much each value of a column says about a label, from noisy counts: empirical Bayes with the known noise.

Post-processing of one release (privacy.md §27.2). A cell of N rows with the log-odds b + f has n₁ rows with the label
+1 and n₀ others, with noise σ in each. With q the probability there, the residual n₁(1 - q) - n₀q has the mean 0 and
the variance σ²((1 - q)² + q²) + Nq(1 - q). An effect f is normal around 0. How wide is not known: what the widths of
all columns say together is the prior of each. Shapes: a table is (2, cells), the label -1 first; effects are (cells,).
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from dbdp.algorithms.stages.column_moments import on_simplex
from dbdp.algorithms.stages.score_calibration import logistic

WIDTHS = np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6])  # standard deviations of effects; 0 is none
MOST = 5.0  # of an effect
MOST_CELLS = 64  # of a column, of which effects have a mean of 0
_ROUNDS, _STEP = 4, 1.0  # Newton's steps, and the longest
_EMPTY = 1e-3  # of the rows, divided among the cells: no cell is empty
_PSEUDO_COLUMNS = 0.3  # with each width, before any column is seen
_UNLIKELY = 0.01  # a width that is left out
_USUAL_LOG_ODDS, _GRID = 2.0, np.linspace(-5.0, 5.0, 201)  # deviation of a base rate's log-odds; those looked at


@dataclass(frozen=True)
class Totals:
    """What all tables together say of the label."""

    rows: float
    log_odds: float  # of the label +1


@dataclass(frozen=True)
class _SeenColumn:
    """A noisy table, and how well each kind of effects and each width explains it."""

    table: np.ndarray
    rows: np.ndarray  # about how many are in each cell
    kernels: list[np.ndarray]  # covariances of effects of width 1: (cells, cells), or their diagonal
    evidence: np.ndarray  # logarithms, (widths, kernels)


def totals(tables: list[np.ndarray], noise: float) -> Totals:
    """Return the number of rows and the base rate: the posterior mean, in log-odds, of all tables' sums."""
    weights = np.array([1 / table.shape[1] for table in tables])  # a sum of c cells has the noise σ√c
    negative, positive = weights @ np.array([table.sum(axis=1) for table in tables]) / weights.sum()
    deviation = noise / math.sqrt(weights.sum())
    rows = max(negative + positive, deviation, 1.0)
    shares = logistic(_GRID)
    error = np.hypot(deviation * np.hypot(shares, 1 - shares), np.sqrt(rows * shares * (1 - shares)))
    logs = -0.5 * (((1 - shares) * positive - shares * negative) / error) ** 2 - np.log(error)
    logs -= 0.5 * (_GRID / _USUAL_LOG_ODDS) ** 2
    likely = np.exp(logs - logs.max())
    share = likely @ shares / likely.sum()
    return Totals(rows, math.log(share / (1 - share)))


def effects(tables: list[np.ndarray], smooth: list[bool], noise: float, found: Totals) -> list[np.ndarray]:
    """Return the posterior means of all effects; those of `smooth` columns differ little between neighbours."""
    columns = [_column(table, noise, found, is_smooth=each) for table, each in zip(tables, smooth, strict=True)]
    return [
        _mean(column, likely, noise, found.log_odds) for column, likely in zip(columns, _widths(columns), strict=True)
    ]


def spread(tables: list[np.ndarray], found: list[np.ndarray]) -> float:
    """Return the standard deviation of the sum of all effects if columns were independent."""
    shares = [np.maximum(table.sum(axis=0), 0.0) + 1.0 for table in tables]
    means = [each / each.sum() for each in shares]
    return math.sqrt(sum(float(mean @ np.square(each)) for mean, each in zip(means, found, strict=True)))


@cache
def _kernels(cells: int, *, is_smooth: bool) -> tuple[np.ndarray, ...]:
    """Return covariances of a line, and of smooth and rougher curves, or of independent effects."""
    if not is_smooth:
        return (np.eye(cells) if cells <= MOST_CELLS else np.ones(cells),)
    line, steps = np.linspace(-1.5, 1.5, cells), np.arange(cells)
    apart = np.abs(steps[:, None] - steps)
    return np.outer(line, line), np.exp(-apart / (cells / 2)), np.exp(-apart / (cells / 8))


def _centred(kernel: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the covariance of effects with a mean of 0 over the rows, of a mean variance of 1; a diagonal stays."""
    if kernel.ndim == 1:
        return kernel
    means = kernel @ shares
    moved = kernel - means[:, None] - means + shares @ means
    return np.asarray(moved / max(float(shares @ np.diagonal(moved)), _EMPTY))


def _column(table: np.ndarray, noise: float, found: Totals, *, is_smooth: bool) -> _SeenColumn:
    cells, share = table.shape[1], float(logistic(np.array(found.log_odds)))
    sums = found.rows * np.array([[1 - share], [share]])
    consistent = table + (sums - table.sum(axis=1, keepdims=True)) / cells
    rows = np.maximum(on_simplex(consistent.sum(axis=0) / found.rows), _EMPTY / cells) * found.rows
    shares = rows / rows.sum()
    kernels = [_centred(kernel, shares) for kernel in _kernels(cells, is_smooth=is_smooth)]
    residual, information, variance = _residuals(consistent, rows, noise, np.full(cells, found.log_odds))
    evidence = [
        [_evidence(width**2 * kernel, residual, information, variance) for kernel in kernels] for width in WIDTHS
    ]
    return _SeenColumn(consistent, rows, kernels, np.array(evidence))


def _residuals(
    table: np.ndarray, rows: np.ndarray, noise: float, log_odds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the residual of each cell, its slope in the effect, and its variance."""
    share = logistic(log_odds)
    information = np.maximum(rows * share * (1 - share), _EMPTY)
    residual = table[1] * (1 - share) - table[0] * share
    return residual, information, noise**2 * ((1 - share) ** 2 + share**2) + information


def _evidence(kernel: np.ndarray, residual: np.ndarray, information: np.ndarray, variance: np.ndarray) -> float:
    """Return the logarithm of the residuals' density where effects have this covariance."""
    if kernel.ndim == 1:
        total = variance + kernel * information**2
        return float(-0.5 * np.sum(residual**2 / total + np.log(total)))
    root = np.linalg.cholesky(np.diag(variance) + information[:, None] * kernel * information)
    return float(-0.5 * np.sum(np.linalg.solve(root, residual) ** 2) - np.log(np.diagonal(root)).sum())


def _widths(columns: list[_SeenColumn]) -> list[np.ndarray]:
    """Return how likely each width and kernel is for each column, by what is likely for all: a mixture, by EM."""
    prior, likely = np.full(len(WIDTHS), 1 / len(WIDTHS)), list[np.ndarray]()
    for _ in range(20):
        logs = [np.log(prior / column.evidence.shape[1])[:, None] + column.evidence for column in columns]
        raised = [np.exp(each - each.max()) for each in logs]
        likely = [each / each.sum() for each in raised]
        counts = _PSEUDO_COLUMNS + np.sum([each.sum(axis=1) for each in likely], axis=0)
        prior = counts / counts.sum()
    return likely


def _mean(column: _SeenColumn, likely: np.ndarray, noise: float, log_odds: float) -> np.ndarray:
    """Return the mean of the most probable effects of each width and kernel."""
    total = np.zeros(len(column.rows))
    for (width, kernel), share in np.ndenumerate(likely):
        if width and share >= _UNLIKELY:
            total += share * _most_probable(column, WIDTHS[width] ** 2 * column.kernels[kernel], noise, log_odds)
    return total


def _most_probable(column: _SeenColumn, kernel: np.ndarray, noise: float, log_odds: float) -> np.ndarray:
    """Return the effects with the greatest posterior density, by a few of Newton's steps."""
    found = np.zeros(len(column.rows))
    for _ in range(_ROUNDS):
        residual, information, variance = _residuals(column.table, column.rows, noise, log_odds + found)
        target, error = found + residual / information, variance / information**2
        if kernel.ndim == 1:
            wanted = kernel / (kernel + error) * target
        else:
            wanted = kernel @ np.linalg.solve(kernel + np.diag(error), target)
        found = np.clip(found + np.clip(wanted - found, -_STEP, _STEP), -MOST, MOST)
    return found
