"""AdaSSP (Wang 2018, arXiv:1803.02596, Algorithm 2), and Boosted AdaSSP (Tang et al. 2023, arXiv:2303.03451).

Both release the second moments of rows x with ‖x‖ ≤ 1 and labels |y| ≤ 1, for one row more or less: xxᵀ and x have
norms of at most 1. Where a row is replaced the differences have at most √2, since ⟨xxᵀ, zzᵀ⟩ ≥ 0, and 2.
Shapes: rows (n, d), labels (n,).
"""

from itertools import product

import numpy as np

from benchmarks.accuracy import encoding
from benchmarks.accuracy.datasets import Split
from benchmarks.accuracy.dp_sgd import from_unit, to_unit
from benchmarks.accuracy.scores import Prediction
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier

RHO = 0.05  # probability that the ridge is too small, in both papers
ROUNDS, CLIP = 100, 1.0  # of boosting, in all of the paper's experiments
ADDED, REPLACED = (1.0, 1.0), (np.sqrt(2), 2.0)  # sensitivities of second moments and of sums of clipped residuals
GRID = tuple(product((1, 10, 100), (0.1, 0.3, 1.0)))  # rounds and clips when tuned
NORMAL_QUANTILE = 1.645  # of 1 - RHO


def ada_ssp(split: Split, epsilon: float) -> list[Prediction]:
    """Return the prediction of AdaSSP with an ε of at most 1, which its noise is proved for."""
    rows, labels = trained_rows(split)
    columns, delta = rows.shape[1], split.data.delta
    width = np.log(6 / delta) / (epsilon / 3)
    root = np.sqrt(np.log(6 / delta)) / (epsilon / 3)
    moments = rows.T @ rows
    least = max(0.0, np.linalg.eigvalsh(moments)[0] + root * np.random.default_rng().normal() - width)
    ridge = max(0.0, np.sqrt(columns * np.log(2 * columns**2 / RHO)) * root - least)
    noisy = moments + root * symmetric(columns) + ridge * np.eye(columns)
    cross = rows.T @ labels + root * np.random.default_rng().normal(size=columns)
    return [predicted(split, np.linalg.solve(noisy, cross))]


def boosted(split: Split, epsilon: float) -> list[Prediction]:
    """Return the prediction of Boosted AdaSSP with the settings of its paper, for one row more or less."""
    return [predicted(split, boost(split, epsilon, ROUNDS, CLIP, ADDED))]


def tuned(split: Split, epsilon: float) -> list[Prediction]:
    """Return the predictions of Boosted AdaSSP with every setting of the grid, for one row replaced."""
    return [predicted(split, boost(split, epsilon, rounds, clip, REPLACED)) for rounds, clip in GRID]


def boost(split: Split, epsilon: float, rounds: int, clip: float, changes: tuple[float, float]) -> np.ndarray:
    """Return the weights after some rounds of least squares for clipped residuals, shape (d,).

    Ridge, moments and all rounds together have a third of the budget each.
    """
    rows, labels = trained_rows(split)
    columns = rows.shape[1]
    noise = np.sqrt(3) * analytic_noise_multiplier(epsilon, split.data.delta)  # three releases of sensitivity 1
    of_moments, of_sums = noise * changes[0], noise * clip * changes[1] * np.sqrt(rounds)
    random = np.random.default_rng()
    moments = rows.T @ rows
    least = max(0.0, np.linalg.eigvalsh(moments)[0] + noise * (random.normal() - NORMAL_QUANTILE))
    ridge = max(0.0, np.sqrt(columns * np.log(2 * columns**2 / RHO)) * of_moments - least)
    inverse = np.linalg.inv(moments + of_moments * symmetric(columns) + ridge * np.eye(columns))
    weights = np.zeros(columns)
    for _ in range(rounds):
        residuals = (labels - rows @ weights).clip(-clip, clip)
        weights += inverse @ (rows.T @ residuals + of_sums * random.normal(size=columns))
    return weights


def trained_rows(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of norm at most 1, and labels in [-1, 1]."""
    labels = to_unit(split.data.truth, split.data.declared["label_bounds"])
    return encoding.bounded(split.data)[split.train], labels[split.train]


def symmetric(columns: int) -> np.ndarray:
    """Return a symmetric matrix with independent normal values on and above its diagonal."""
    upper = np.triu(np.random.default_rng().normal(size=(columns, columns)))
    return upper + np.triu(upper, 1).T


def predicted(split: Split, weights: np.ndarray) -> Prediction:
    """Return the numbers that a model predicts for the test rows."""
    values = encoding.bounded(split.data)[split.test] @ weights
    return Prediction(from_unit(values, split.data.declared["label_bounds"]))
