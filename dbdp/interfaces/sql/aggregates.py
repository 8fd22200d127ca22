"""The transition and final functions of the internal aggregates, by which packed blocks are trained on and scored.

This module is imported in the server's hot path: the standard library and NumPy only. `interface` comes first: it
limits BLAS to one thread before NumPy is loaded.
"""

from dbdp.interfaces.sql.boundary import pause  # isort: split

import json
import math
from functools import lru_cache
from typing import Any

import numpy as np

from dbdp import checks
from dbdp.algorithms.scores.score_bins import MOST_BINS
from dbdp.learning import kernels, noisy, second_moments
from dbdp.learning.counts import tallies
from dbdp.learning.counts.tallies import Labels
from dbdp.learning.noisy import NoisyState
from dbdp.learning.objectives import Additive, Linear, Softmax, objective_from
from dbdp.learning.rows import blocks, placed
from dbdp.learning.rows.column_blocks import placed_from
from dbdp.learning.state import State
from dbdp.packing import resident
from dbdp.privacy.noise import streams
from dbdp.registry.declarations import MAX_CLASSES

_BLOCKS = 8  # of rows that are held, trained on between two pauses: about a millisecond
_LONG = 1 << 18  # parameters of a model whose noise takes as long; that of fewer is drawn so many numbers at a time


def sgd_transition(state: bytes | None, block: bytes, initial: bytes) -> bytes:
    """Update each of the models by the mini-batches of one block."""
    states = State.decode_each(initial if state is None else state)
    rows = resident.decode(block, states[0].dimension)
    return b"".join(each.encode() for each in kernels.transition_of_each(states, rows))


def sgd_terminate(state: bytes | None) -> bytes | None:
    """End an epoch of each of the models with its last mini-batch, which may be short."""
    return None if state is None else b"".join(kernels.terminate(each).encode() for each in State.decode_each(state))


def noisy_transition(state: bytes | None, block: bytes, initial: bytes) -> bytes:
    """Update the model by the noisy updates of one block; the noise's key exists in this call only."""
    current = NoisyState.decode(initial if state is None else state)
    inputs = current.training.objective.inputs
    steps = resident.steps(block, inputs)
    if steps is None:
        return noisy.transition(current, resident.decode(block, inputs), draw=_draw).encode()
    rows, ends = steps
    together, done = _BLOCKS * blocks.rows_per_block(inputs), 0
    for first in range(0, len(rows), together):
        pause()
        ended = int(np.searchsorted(ends, first + together, side="right"))
        piece = rows[first : first + together]
        current = noisy.transition(current, piece, draw=_draw, ends=ends[done:ended] - first)
        done = ended
    return current.encode()


def noisy_terminate(state: bytes | None) -> bytes | None:
    """End a scan with its last mini-batch, which may be short."""
    return None if state is None else noisy.terminate(NoisyState.decode(state), draw=_draw).encode()


def _draw(law: str, steps: int, updates: int, parameters: int) -> np.ndarray:
    """Draw the noise of some updates; a cancel takes effect before that of a large model, drawn update by update.

    How many updates come at a time otherwise is secret, as it is where the mini-batches end.
    """
    if parameters >= _LONG:
        pause()
    return streams.draw(law, steps, updates, parameters)


def gradient_transition(total: bytes | None, block: bytes, model: bytes, objective: str, clip: float) -> bytes:
    """Add the clipped gradients of the rows of one block."""
    parsed, vector = objective_from(objective), np.frombuffer(model, "<f8")
    if len(vector) != parsed.parameters:
        raise ValueError(f"the model has {len(vector)} numbers, and its objective {parsed.parameters}; pass as many")
    gradients = parsed.gradient_sum(vector, resident.decode(block, parsed.inputs), clip=clip)
    return (gradients if total is None else np.frombuffer(total, "<f8") + gradients).tobytes()


def measured_gradient_transition(
    total: bytes | None, block: bytes, lengths: bytes, model: bytes, objective: str, clip: float
) -> bytes:
    """Add the gradients of the rows of one block, clipped by the lengths of the rows in other coordinates."""
    parsed, vector, bounds = objective_from(objective), np.frombuffer(model, "<f8"), np.frombuffer(lengths, "<f4")
    if not isinstance(parsed, (Linear, Softmax, Additive)):
        raise ValueError("a network has no gradients in other coordinates; choose a linear objective")
    rows = resident.decode(block, parsed.inputs)
    if len(vector) != parsed.parameters or len(bounds) != len(rows):
        raise ValueError(
            f"the model has {len(vector)} numbers, and its objective {parsed.parameters}; the block has {len(rows)} "
            f"rows, and {len(bounds)} lengths; pass as many"
        )
    gradients = parsed.gradient_sum(vector, rows, clip=clip, lengths=bounds)
    return (gradients if total is None else np.frombuffer(total, "<f8") + gradients).tobytes()


def loss_transition(totals: bytes | None, block: bytes, models: bytes, objective: str, limit: float) -> bytes:
    """Add the clipped losses of the rows of one block, for each of several models."""
    parsed = objective_from(objective)
    candidates = np.frombuffer(models, "<f8").reshape(-1, parsed.parameters)
    losses = parsed.loss_sums(candidates, resident.decode(block, parsed.inputs), limit=limit)
    return (losses if totals is None else np.frombuffer(totals, "<f8") + losses).tobytes()


def second_moment_transition(total: bytes | None, block: bytes, dimension: int) -> bytes:
    """One block: add the products of all pairs of coordinates of each of its rows."""
    checks.whole("dimension", dimension, 1, second_moments.MOST_DIMENSION)
    moment = second_moments.second_moment(resident.decode(block, dimension), dimension)
    return (moment if total is None else _square(total, dimension) + moment).tobytes()


def joint_moment_transition(total: bytes | None, block: bytes, dimension: int, labels: int, weight: float) -> bytes:
    """One block: add the products of all pairs of coordinates of each of its rows with its label."""
    for name, value in (("dimension", dimension), ("labels", labels), ("dimension + labels", dimension + labels)):
        checks.whole(name, value, 1, second_moments.MOST_DIMENSION)
    moment = second_moments.joint_moment(resident.decode(block, dimension), dimension, labels, weight)
    return (moment if total is None else _square(total, dimension + labels) + moment).tobytes()


def lengths(block: bytes, matrix: bytes, row_blocks: str | None) -> bytes:
    """One block: bounds on the lengths of its rows times a matrix; of rows in places by its factors, see `placed`."""
    if row_blocks is not None:
        by = placed_from(row_blocks, matrix)
        return placed.measured(resident.decode(block, by.rows_of.places), by).tobytes()
    dimension = math.isqrt(len(matrix) // 8)
    checks.whole("dimension of the matrix", dimension, 1, second_moments.MOST_DIMENSION)
    return second_moments.lengths(resident.decode(block, dimension), _square(matrix, dimension)).tobytes()


def _square(matrix: bytes, dimension: int) -> np.ndarray:
    """Return a matrix, shape (dimension, dimension)."""
    if len(matrix) != 8 * dimension**2:
        raise ValueError(f"{len(matrix)} bytes are not a matrix of {dimension} by {dimension} numbers of 8 bytes")
    return np.frombuffer(matrix, "<f8").reshape(dimension, dimension)


def label_transition(counts: list[int] | None, block: bytes, dimension: int, classes: int) -> list[int]:
    """Add the numbers of rows of each label in one block."""
    checks.whole("classes", classes, 1, MAX_CLASSES)
    rows = resident.decode(block, dimension)
    of_block = Labels(classes)(rows[:, :0], rows[:, -1]).tolist()
    return [one + other for one, other in zip(counts or [0] * len(of_block), of_block, strict=True)]


def count_errors_transition(errors: int, block: bytes, models: bytes, outputs: int) -> int:
    """Add the number of rows of one block that the models classify wrongly."""
    checks.whole("outputs", outputs, 1, MAX_CLASSES)
    vectors = np.frombuffer(models, "<f8").reshape(outputs, -1)
    return errors + kernels.count_errors(vectors, resident.decode(block, vectors.shape[1]))


def tally_transition(counts: bytes | None, block: bytes, models: bytes, description: str) -> bytes:
    """Add the tally of one block, by its rows' labels and the models' scores, to the counts so far."""
    parsed = _parsed(description)
    vectors, rows = np.frombuffer(models, "<f8"), resident.decode(block, parsed["dimension"])
    added = tallies.tally_of_rows(vectors, rows, parsed)
    return (added if counts is None else np.frombuffer(counts, "<i8") + added).tobytes()


@lru_cache(maxsize=8)
def _parsed(description: str) -> dict[str, Any]:
    """Return the parsed description of a tally; raise ValueError for sizes with which a block would need all memory."""
    parsed: dict[str, Any] = json.loads(description)
    for name, value, most in (
        ("outputs", parsed["outputs"], MAX_CLASSES),
        ("classes", parsed["tally"].get("classes", 1), MAX_CLASSES),
        ("bins", parsed["tally"].get("bins", 1), MOST_BINS),
    ):
        checks.whole(f"{name} of a tally", value, 1, most)
    return parsed


def tally_terminate(counts: bytes | None) -> list[int] | None:
    """Return the counts of a tally as a list; None without a block."""
    return None if counts is None else np.frombuffer(counts, "<i8").tolist()
