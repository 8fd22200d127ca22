"""Rows in memory, for tests of algorithms without a database: the same sums, by the same kernels."""

import math

import numpy as np

from dbdp.learning import kernels, noisy
from dbdp.learning.counts import tallies
from dbdp.learning.objectives import additive
from dbdp.learning.rows import blocks, placed
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE
from dbdp.learning.rows.encoding import pack
from dbdp.learning.second_moments import OtherCoordinates, SecondMoment
from dbdp.privacy.noise import streams


class RowsInMemory:
    """Rows as `dbdp.algorithms.rows.Rows`; `reads` lists the names of the methods that were called.

    Parameters
    ----------
    features : (n, d); clipped to norm 1 as packing does
    labels : (n,)
    """

    def __init__(self, features, labels, *, portion=1_000_000):
        self.dimension = np.shape(features)[1]
        self.all = pack(np.array(features, np.float64), np.asarray(labels, np.float64))
        self.packed, self.size, self.portion, self.reads = self.all, 0, portion, []

    def shuffle(self):
        self.packed = self.all[np.random.default_rng().permutation(len(self.all))]

    def pack(self):
        self.packed = self.all

    def draw(self, samples, most):
        steps, self.size = min(most, self.portion), samples.size
        chosen = np.random.default_rng().random((steps, len(self.all))) < samples.probability
        self.packed = np.zeros((steps, self.size, self.all.shape[1]), np.float32)
        for step, each in enumerate(chosen):
            kept = self.all[each][: self.size]
            self.packed[step, : len(kept)] = kept
        self.packed = self.packed.reshape(-1, self.all.shape[1])
        return steps

    def scan(self, states):
        self.reads.append("scan")
        moved = [noisy.transition(state, self.packed, draw=streams.draw) for state in states]
        return [noisy.terminate(state, draw=streams.draw) for state in moved]

    def scan_samples(self, samples, most, states):
        return self.draw(samples, most), self.scan(states)

    def gradient_sum(self, objective, model, *, clip, batch=None):
        self.reads.append("gradient_sum")
        return objective.gradient_sum(model, self._of(batch), clip=clip)

    def recursive_stages(self, objective, model, centre, how):
        self.reads += ["stage"] * how.stages
        assert how.rows == len(self.packed)
        for _ in range(how.stages):
            gradient = objective.gradient_sum(model, self.packed, clip=math.inf) / how.rows
            model, direction = model.copy(), gradient + how.regularisation * (model - centre)
            drawn = self.packed[np.random.default_rng().integers(how.rows, size=how.steps)]
            objective.recursive_steps(model, direction, drawn, step=how.step, regularisation=how.regularisation)
        return model

    def loss_sums(self, objective, models, *, limit=math.inf, batch=None):
        self.reads.append("loss_sums")
        return objective.loss_sums(models, self._of(batch), limit=limit)

    def second_moment(self):
        self.reads.append("second_moment")
        return SecondMoment(self.dimension).of_rows(self.packed)

    def transform(self, matrix, placed=None):
        assert placed is None
        self.reads.append("transform")
        features, labels, _ = kernels.unpacked(self.packed, len(matrix))
        self.packed = blocks.encode(features @ matrix.T, labels)

    def label_counts(self, classes):
        self.reads.append("label_counts")
        labels = self.all[:, -1]
        return np.array([np.sum(labels == each) for each in ((-1, 1) if classes == 1 else range(1, classes + 1))])

    def errors(self, models):
        self.reads.append("errors")
        return kernels.count_errors(np.atleast_2d(models), self.all)

    def tally(self, vectors, tally):
        self.reads.append("tally")
        return tallies.tally_of_rows(np.ravel(vectors), self.all, tally)

    def _of(self, batch):
        if batch is None:
            return self.packed
        return self.packed[batch * self.size : (batch + 1) * self.size]


class RowsInPlaces(RowsInMemory):
    """The same for rows in places, from their coordinates (n, d) of some blocks; a row of zeros is the zero row."""

    def __init__(self, features, labels, rows_of):
        super().__init__(features, labels)
        valid = np.isfinite(labels) & np.any(features, axis=1)
        self.all = self.packed = blocks.encode(
            places_of(features, rows_of) * valid[:, None], np.where(valid, labels, 0)
        )
        self.moved = self.rows_of = self.lengths = None

    def transform(self, matrix, placed_by):
        self.reads.append("transform")
        self.moved, self.rows_of = OtherCoordinates(matrix), placed_by.rows_of
        self.lengths = placed.measured(self.packed, placed_by)

    def gradient_sum(self, objective, model, *, clip, batch=None):
        self.reads.append("gradient_sum")
        how = {"clip": clip, "lengths": self.lengths}
        model = self.moved.models(model).ravel()
        return self.moved.gradients(additive(objective, self.rows_of).gradient_sum(model, self.packed, **how))


def rows_for(release_plan, features, labels):
    """Rows with these coordinates as a plan packs them: in places, if it does so."""
    if release_plan.layout.in_places:
        return RowsInPlaces(features, labels, release_plan.facts.blocks)
    return RowsInMemory(features, labels)


def places_of(features, rows_of):
    """The places of rows with these coordinates (n, d), the constant's last, by their definition."""
    places, first = [np.ones(len(features))], 0
    for block in rows_of.blocks:
        own = np.asarray(features)[:, first : first + block.width] * rows_of.radius
        first += block.width
        if block.kind == CURVE:
            places.append(own @ np.arange(block.width))
        elif block.kind == CATEGORY:
            places.append(np.where(own.max(axis=1) > block.size / 2, own.argmax(axis=1), block.width))
        else:
            places.append((own[:, 0] - block.least) / (block.size - block.least))
    return np.column_stack(places)
