"""Access to rows in memory, for tests of algorithms without a database: the same sums, by the same kernels."""

import math

import numpy as np

from dbdp.learning import noisy
from dbdp.learning.encoding import pack
from dbdp.privacy import streams


class RowsInMemory:
    """Implements `dbdp.algorithms.access.Access`; counts what was asked in `asked`.

    Parameters
    ----------
    features : (n, d); clipped to norm 1 as packing does
    labels : (n,)
    """

    def __init__(self, features, labels, *, portion=1_000_000):
        self.all = pack(np.array(features, np.float64), np.asarray(labels, np.float64))
        self.packed, self.ends, self.portion, self.asked = self.all, None, portion, []

    def shuffle(self):
        self.packed, self.ends = self.all[np.random.default_rng().permutation(len(self.all))], None

    def draw(self, probability, most, *, apart=False):
        steps = min(most, self.portion)
        chosen = np.random.default_rng().random((steps, len(self.all))) < probability
        self.packed = np.concatenate([self.all[each] for each in chosen])
        self.ends = np.cumsum(chosen.sum(axis=1))
        return steps

    def scan(self, state):
        self.asked.append("scan")
        ends = None if self.ends is None else self.ends.astype("<i8")
        state = noisy.transition(state, self.packed, ends=ends, draw=streams.draw)
        return noisy.terminate(state, draw=streams.draw)

    def gradient_sum(self, objective, model, *, clip, batch=None):
        self.asked.append("gradient_sum")
        return objective.gradient_sum(model, self._of(batch), clip=clip)

    def loss_sums(self, objective, models, *, limit=math.inf, batch=None):
        self.asked.append("loss_sums")
        return objective.loss_sums(models, self._of(batch), limit=limit)

    def label_counts(self, classes):
        self.asked.append("label_counts")
        labels = self.all[:, -1]
        return np.array([np.sum(labels == each) for each in ((-1, 1) if classes == 1 else range(1, classes + 1))])

    def _of(self, batch):
        if batch is None:
            return self.packed
        return self.packed[(self.ends[batch - 1] if batch else 0) : self.ends[batch]]
