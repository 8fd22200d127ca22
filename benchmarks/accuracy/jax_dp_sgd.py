"""DP-SGD of JAX-Privacy for linear models: its Poisson samples, its clipped gradients and its noise.

The noise multiplier is that of dp_accounting's privacy loss distribution for one row replaced, as in dbdp. The
library's own plan (BandMFExecutionPlanConfig) is not used: where a row is replaced it multiplies the doubled
sensitivity of a clipped gradient with a multiplier that dp_accounting has doubled already, twice the noise it needs.
Shapes: rows (n, d), labels (n, K), weights (d, K).
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np

from benchmarks.accuracy import dp_sgd
from benchmarks.accuracy.datasets import BINARY, CLASSES, Split
from benchmarks.accuracy.dp_sgd import Setting
from benchmarks.accuracy.scores import Prediction

INTERVAL = 1e-4  # of the discretised privacy loss: JAX-Privacy's own
replaced = partial(dp_sgd.by_dp_accounting, relation="REPLACE_ONE", interval=INTERVAL)


def grid(split: Split, epsilon: float) -> Iterator[Prediction]:
    """Train every setting of the textbook's grid, and predict the test rows."""
    return dp_sgd.grid(split, epsilon, replaced, train)


def train(rows: np.ndarray, labels: np.ndarray, setting: Setting, noise: float, task: str) -> np.ndarray:
    """Return the last weights, shape (d, K)."""
    from jax_privacy import batch_selection, noise_addition

    rows, labels, count = rows.astype(np.float32), labels.astype(np.float32), len(rows)
    weights = np.zeros((rows.shape[1], labels.shape[1]), np.float32)
    state = noise_addition.gaussian_privatizer(stddev=1.0).init(weights)  # with a seed of its own
    update = stepping(task, setting.clip)
    length, size = setting.step / (setting.clip * setting.rate * count), padded(count, setting.rate)
    for places in batch_selection.CyclicPoissonSampling(setting.rate, setting.updates).batch_iterator(count):
        shown = batch_selection.pad_to_multiple_of(np.append(places, -1), size)  # -1: a row that counts for nothing
        weights, state = update(weights, state, rows[shown], labels[shown], shown < 0, noise * setting.clip, length)
    return np.asarray(weights, float)


def padded(count: int, rate: float) -> int:
    """Return a size that samples hardly ever exceed, so that one size is compiled; an empty one has a row that pads."""
    return 1 + (count if rate == 1 else math.ceil(count * rate + 8 * math.sqrt(count * rate)))


@lru_cache
def stepping(task: str, clip: float) -> Callable[..., tuple[Any, Any]]:
    """Return the compiled update of the weights and of the noise's state."""
    import jax
    from jax_privacy import clipping, noise_addition

    summed = clipping.clipped_grad(partial(loss, task), l2_clip_norm=clip, batch_argnums=(1, 2), keep_batch_dim=False)

    @jax.jit
    def update(weights: Any, state: Any, rows: Any, labels: Any, padding: Any, deviation: float, length: float) -> Any:
        total = summed(weights, rows, labels, is_padding_example=padding)
        noisy, state = noise_addition.gaussian_privatizer(stddev=deviation, prng_key=0).update(total, state)
        return weights - length * noisy, state

    return update


def loss(task: str, weights: Any, row: Any, label: Any) -> Any:
    """Return the loss of one row: logistic, softmax or half the squared one."""
    import jax

    scores = row @ weights
    if task == BINARY:
        return (jax.nn.softplus(scores) - label * scores).sum()
    if task == CLASSES:
        return jax.nn.logsumexp(scores) - label @ scores
    return ((scores - label) ** 2).sum() / 2
