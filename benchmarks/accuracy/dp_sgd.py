"""DP-SGD (Abadi et al. 2016) for linear models, tuned on the test rows: more than a private system can have.

Gradients are clipped row by row over Poisson samples, with Gaussian noise in every sum. The accountant is the privacy
loss distribution: dbdp's for one row replaced, which is dbdp's guarantee, or that of dp_accounting for one row more or
less, which is usual, weaker, and needs about half the noise. The tuning is not charged.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import numpy as np
from scipy.special import expit, softmax

from benchmarks.accuracy import encoding
from benchmarks.accuracy.datasets import BINARY, CLASSES, REGRESSION, Split
from benchmarks.accuracy.scores import Prediction
from dbdp.privacy.accounting.loss_distribution import poisson_gaussian_pld_multiplier

SAMPLES = ((0.01, 1000), (0.05, 200), (0.25, 40), (1.0, 20))  # share of the rows in an update, and updates
STEPS = {BINARY: (1.0, 4.0, 16.0), CLASSES: (2.0, 8.0, 32.0), REGRESSION: (0.5, 2.0, 8.0)}
CLIPS = (0.2, 1.0)
INTERVAL = 1e-3  # of the discretised privacy loss, rounded up: at most a little more noise

Accountant = Callable[[float, float, float, int], float]  # ε, δ, share, updates → noise by clip
Residual = Callable[[np.ndarray, np.ndarray], np.ndarray]
Trainer = Callable[..., np.ndarray]  # rows, labels, setting, noise by clip, task → weights


@dataclass(frozen=True)
class Setting:
    """One point of the grid; `step` is in units of the clip."""

    rate: float
    updates: int
    step: float
    clip: float


@lru_cache
def replaced(epsilon: float, delta: float, rate: float, updates: int) -> float:
    """Return the deviation of the noise by the clip, for one row replaced."""
    return poisson_gaussian_pld_multiplier(epsilon, delta, rate, updates)


@lru_cache
def by_dp_accounting(
    epsilon: float, delta: float, rate: float, updates: int, relation: str, interval: float = INTERVAL
) -> float:
    """Return the deviation of the noise by the clip, for a neighbour relation of dp_accounting."""
    import dp_accounting
    from dp_accounting import pld

    def event(multiplier: float) -> dp_accounting.DpEvent:
        gaussian = dp_accounting.GaussianDpEvent(multiplier)
        return dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(rate, gaussian), updates)

    near = replaced(epsilon, delta, rate, updates)  # where the search begins, which changes no result
    return dp_accounting.calibrate_dp_mechanism(
        lambda: pld.PLDAccountant(dp_accounting.NeighboringRelation[relation], interval),
        event,
        epsilon,
        delta,
        dp_accounting.ExplicitBracketInterval(0.3 * near, 1.5 * near),
        tol=5e-4 * near,
    )


added = partial(by_dp_accounting, relation="ADD_OR_REMOVE_ONE")


def binary(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the derivatives of the logistic loss by the scores, shape (m, 1)."""
    return expit(scores) - labels


def several(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the derivatives of the softmax loss by the scores, shape (m, K)."""
    return softmax(scores, axis=1) - labels


def squared(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the derivatives of half the squared loss by the scores, shape (m, 1)."""
    return scores - labels


RESIDUALS: dict[str, Residual] = {BINARY: binary, CLASSES: several, REGRESSION: squared}


def grid(split: Split, epsilon: float, accountant: Accountant, trainer: Trainer | None = None) -> Iterator[Prediction]:
    """Train every setting of the grid, and predict the test rows."""
    data = split.data
    rows, labels = (encoding.bounded if data.task == REGRESSION else encoding.unit)(data), targets(split)
    for (rate, updates), step, clip in product(SAMPLES, STEPS[data.task], CLIPS):
        noise = accountant(epsilon, data.delta, rate, updates)
        setting = Setting(rate, updates, step, clip)
        weights = (trainer or train)(rows[split.train], labels[split.train], setting, noise, data.task)
        yield predicted(split, rows[split.test] @ weights)


def targets(split: Split) -> np.ndarray:
    """Return the labels as the losses take them, shape (n, 1) or, one-hot, (n, K)."""
    data = split.data
    if data.task == CLASSES:
        return np.eye(len(data.declared["classes"]))[data.truth]
    if data.task == REGRESSION:
        return to_unit(data.truth, data.declared["label_bounds"])[:, None]
    return data.truth[:, None]


def to_unit(values: np.ndarray, bounds: list[float]) -> np.ndarray:
    """Return numbers moved from their bounds to [-1, 1]."""
    return 2 * (values - bounds[0]) / (bounds[1] - bounds[0]) - 1


def from_unit(values: np.ndarray, bounds: list[float]) -> np.ndarray:
    """Return numbers moved from [-1, 1] to bounds."""
    return bounds[0] + (values + 1) * (bounds[1] - bounds[0]) / 2


def train(rows: np.ndarray, labels: np.ndarray, setting: Setting, noise: float, task: str) -> np.ndarray:
    """Return the last weights, shape (d, K)."""
    residual, random = RESIDUALS[task], np.random.default_rng()
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    weights = np.zeros((rows.shape[1], labels.shape[1]))
    length = setting.step / (setting.clip * setting.rate * len(rows))
    for _ in range(setting.updates):
        drawn = slice(None) if setting.rate == 1 else random.random(len(rows)) < setting.rate
        total = clipped_sum(rows[drawn], norms[drawn], residual(rows[drawn] @ weights, labels[drawn]), setting.clip)
        weights -= length * (total + noise * setting.clip * random.normal(size=weights.shape))
    return weights


def clipped_sum(rows: np.ndarray, norms: np.ndarray, residuals: np.ndarray, clip: float) -> np.ndarray:
    """Return the sum of the rows' gradients, each of norm at most `clip`, shape (d, K)."""
    lengths = norms * np.linalg.norm(residuals, axis=1, keepdims=True)
    return rows.T @ (residuals * np.minimum(1, clip / np.maximum(lengths, 1e-12)))


def predicted(split: Split, scores: np.ndarray) -> Prediction:
    """Return what scores of the test rows predict, shape (m, K)."""
    if split.data.task == REGRESSION:
        return Prediction(from_unit(scores[:, 0], split.data.declared["label_bounds"]))
    return Prediction.by_log_odds(scores if split.data.task == CLASSES else scores[:, 0])
