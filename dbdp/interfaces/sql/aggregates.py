"""The transition and final functions of the internal aggregates, by which packed blocks are trained on and scored.

This module is imported in the server's hot path: the standard library and NumPy only. `interface` comes first: it
limits BLAS to one thread before NumPy is loaded.
"""

from dbdp.interfaces.sql.boundary import pause, session  # isort: split

import json
import math
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dbdp import checks
from dbdp.algorithms.scores.score_bins import MOST_BINS
from dbdp.learning import kernels, noisy, second_moments
from dbdp.learning.compiled import sums
from dbdp.learning.counts import tallies
from dbdp.learning.counts.tallies import Labels
from dbdp.learning.noisy import NoisyState
from dbdp.learning.objectives import Additive, Linear, Softmax, objective_from
from dbdp.learning.rows import placed
from dbdp.learning.rows.column_blocks import placed_from
from dbdp.learning.second_moments import SecondMoment, lengths_by
from dbdp.learning.state import State
from dbdp.packing import resident
from dbdp.privacy.noise import streams
from dbdp.registry.declarations import MAX_CLASSES
from dbdp.sessions.inside import parallel

_LONG = 1 << 18  # parameters of a model whose noise takes as long; that of fewer is drawn so many numbers at a time


def sgd_transition(state: bytes | None, block: bytes, initial: bytes) -> bytes:
    """Update each of the models by the mini-batches of one block."""
    states = State.decode_each(initial if state is None else state)
    rows = resident.rows_of(block, states[0].dimension)
    for piece in rows.pieces:
        pause()
        states = kernels.transition_of_each(states, rows.read(piece))
    return b"".join(each.encode() for each in states)


def sgd_terminate(state: bytes | None) -> bytes | None:
    """End an epoch of each of the models with its last mini-batch, which may be short."""
    return None if state is None else b"".join(kernels.terminate(each).encode() for each in State.decode_each(state))


def noisy_transition(state: bytes | None, block: bytes, initial: bytes) -> bytes:
    """Update the model by the noisy updates of one block; the noise's key exists in this call only."""
    current = NoisyState.decode(initial if state is None else state)
    rows = resident.rows_of(block, current.training.objective.inputs)
    ends, done = rows.ends, 0
    for piece in rows.pieces:
        pause()
        ended = None
        if ends is not None:
            last = int(np.searchsorted(ends, piece.stop, side="right"))
            ended, done = ends[done:last] - piece.start, last
        current = noisy.transition(current, rows.read(piece), draw=_draw, ends=ended)
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


def _sum(total: bytes | None, block: bytes, inputs: int, size: int, of_piece: Callable[..., np.ndarray]) -> bytes:
    """Add sums over the rows of one block, each of so many numbers, to a total of `sums`."""
    added = _total(total, size)
    for part in resident.rows_of(block, inputs).sum(session, size, of_piece):
        added = sums.with_part(added, part)
    return added.tobytes()


def _total(encoded: bytes | None, size: int) -> np.ndarray:
    """Return a total of so many numbers, (2, size): the state of an aggregate, or one of nothing."""
    if encoded is None:
        return np.zeros((2, size))
    if len(encoded) != 16 * size:
        raise ValueError(f"a total of {len(encoded)} bytes does not have the {size} numbers of these sums")
    return np.frombuffer(encoded, "<f8").reshape(2, size)


def gradient_transition(total: bytes | None, block: bytes, model: bytes, objective: str, clip: float) -> bytes:
    """Add the clipped gradients of the rows of one block."""
    parsed, vector = objective_from(objective), np.frombuffer(model, "<f8")
    if len(vector) != parsed.parameters:
        raise ValueError(f"the model has {len(vector)} numbers, and its objective {parsed.parameters}; pass as many")
    return _sum(total, block, parsed.inputs, len(vector), lambda rows, _: parsed.gradient_sum(vector, rows, clip=clip))


def measured_gradient_transition(
    total: bytes | None, block: bytes, lengths: bytes, model: bytes, objective: str, clip: float
) -> bytes:
    """Add the gradients of the rows of one block, clipped by the lengths of the rows in other coordinates."""
    parsed, vector, bounds = objective_from(objective), np.frombuffer(model, "<f8"), np.frombuffer(lengths, "<f4")
    if not isinstance(parsed, (Linear, Softmax, Additive)):
        raise ValueError("a network has no gradients in other coordinates; choose a linear objective")
    count = resident.rows_of(block, parsed.inputs).count
    if len(vector) != parsed.parameters or len(bounds) != count:
        raise ValueError(
            f"the model has {len(vector)} numbers, and its objective {parsed.parameters}; the block has {count} "
            f"rows, and {len(bounds)} lengths; pass as many"
        )

    def of_rows(rows: np.ndarray, piece: slice) -> np.ndarray:
        return parsed.gradient_sum(vector, rows, clip=clip, lengths=bounds[piece])

    return _sum(total, block, parsed.inputs, len(vector), of_rows)


def loss_transition(totals: bytes | None, block: bytes, models: bytes, objective: str, limit: float) -> bytes:
    """Add the clipped losses of the rows of one block, for each of several models."""
    parsed = objective_from(objective)
    candidates = np.frombuffer(models, "<f8").reshape(-1, parsed.parameters)
    return _sum(
        totals,
        block,
        parsed.inputs,
        len(candidates),
        lambda rows, _: parsed.loss_sums(candidates, rows, limit=limit),
    )


def second_moment_transition(total: bytes | None, block: bytes, dimension: int) -> bytes:
    """One block: add the products of all pairs of coordinates of each of its rows."""
    return joint_moment_transition(total, block, dimension, 0, 0.0)


def joint_moment_transition(total: bytes | None, block: bytes, dimension: int, labels: int, weight: float) -> bytes:
    """One block: add the products of all pairs of coordinates of each of its rows with its label."""
    checks.whole("labels", labels, 0, second_moments.MOST_DIMENSION)
    for name, number in (("dimension", dimension), ("dimension + labels", dimension + labels)):
        checks.whole(name, number, 1, second_moments.MOST_DIMENSION)
    moment = SecondMoment(dimension, labels, weight)
    if moment.size <= second_moments.NARROW:
        return _sum(total, block, dimension, moment.size**2, lambda rows, _: moment.of_rows(rows).ravel())
    rows = resident.rows_of(block, dimension)
    part = moment.in_strips(rows.read, rows.count, partial(parallel.each, session))
    return sums.with_part(_total(total, moment.size**2), part.ravel()).tobytes()


def lengths(block: bytes, matrix: bytes, row_blocks: str | None) -> bytes:
    """One block: bounds on the lengths of its rows times a matrix; of rows in places by its factors, see `placed`."""
    if row_blocks is not None:
        by = placed_from(row_blocks, matrix)
        return _of_rows(block, by.rows_of.places, lambda rows: placed.measured(rows, by))
    dimension = math.isqrt(len(matrix) // 8)
    checks.whole("dimension of the matrix", dimension, 1, second_moments.MOST_DIMENSION)
    if len(matrix) != 8 * dimension**2:
        raise ValueError(f"{len(matrix)} bytes are not a matrix of {dimension} by {dimension} numbers of 8 bytes")
    square = np.frombuffer(matrix, "<f8").reshape(dimension, dimension)
    return _of_rows(block, dimension, lengths_by(square))


def _of_rows(block: bytes, inputs: int, of_rows: Callable[[np.ndarray], np.ndarray]) -> bytes:
    """Return numbers for each row of one block."""
    rows = resident.rows_of(block, inputs)
    found = parallel.each(session, lambda piece: of_rows(rows.read(piece)).tobytes(), rows.pieces)
    return b"".join(found)


def label_transition(counts: list[int] | None, block: bytes, dimension: int, classes: int) -> list[int]:
    """Add the numbers of rows of each label in one block."""
    checks.whole("classes", classes, 1, MAX_CLASSES)
    found = _counted(block, dimension, lambda rows: Labels(classes)(rows[:, :0], rows[:, -1]))
    return (found if counts is None else found + np.array(counts)).tolist()


def count_errors_transition(errors: int, block: bytes, models: bytes, outputs: int) -> int:
    """Add the number of rows of one block that the models classify wrongly."""
    checks.whole("outputs", outputs, 1, MAX_CLASSES)
    vectors = np.frombuffer(models, "<f8").reshape(outputs, -1)
    return errors + int(_counted(block, vectors.shape[1], lambda rows: kernels.count_errors(vectors, rows)))


def tally_transition(counts: bytes | None, block: bytes, models: bytes, description: str) -> bytes:
    """Add the tally of one block, by its rows' labels and the models' scores, to the counts so far."""
    parsed, vectors = _parsed(description), np.frombuffer(models, "<f8")
    added = _counted(block, parsed["dimension"], lambda rows: tallies.tally_of_rows(vectors, rows, parsed))
    return (added if counts is None else np.frombuffer(counts, "<i8") + added).tobytes()


def _counted(block: bytes, inputs: int, of_rows: Callable[[np.ndarray], Any]) -> Any:
    """Return the sum of whole numbers over the rows of one block, which are the same in any order."""
    rows, adding = resident.rows_of(block, inputs), threading.Lock()
    total = [of_rows(rows.read(slice(0, 0)))]

    def task(pieces: list[slice]) -> None:
        for piece in pieces:
            found = of_rows(rows.read(piece))
            with adding:
                total[0] = total[0] + found

    parallel.each(session, task, rows.tasks())
    return total[0]


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
