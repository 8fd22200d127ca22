"""Noisy SGD: every update adds noise on a grid to the sum of its mini-batch's clipped gradients.

The caller draws the noise, as integers; this module adds it and does not know its privacy guarantee.
Shapes: a model has P parameters; rows (n, stride) float32 as in `blocks`.
"""

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dbdp.checks import is_whole
from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import SHRINK, flushed
from dbdp.learning.compiled.sums import with_part
from dbdp.learning.objectives import Linear, Objective, objective_from
from dbdp.learning.schedules import Schedule, schedule_with

Draw = Callable[[str, int, int, int], np.ndarray]  # law, steps, updates, parameters → integers (updates, P)

MOST_STEPS = 2.0**52  # noise in steps of the grid stays below: it is exact in doubles
_HEADER = struct.Struct("<4sIqq")  # magic, length of the training's JSON, filled, updates
_MAGIC = b"dbn2"
_DRAWN = 1 << 18  # integers drawn at a time: 2 MB


@dataclass(frozen=True)
class UpdateNoise:
    """The noise of every sum of gradients: `law` names its distribution, `steps` × `grid` is its scale."""

    law: str
    steps: int
    grid: float


@dataclass(frozen=True)
class NoisyTraining:
    """The constants of a noisy training."""

    objective: Objective
    schedule: Schedule
    divisor: float  # divisor of the noisy sum: b, or the expected size of a Poisson mini-batch; public
    rows_per_update: int  # packed rows of one mini-batch, unless mini-batches of secret sizes are packed together
    regularisation: float
    clip: float  # largest norm of a row's gradient
    noise: UpdateNoise
    radius: float = math.inf  # after every update each model is projected onto ‖w‖₂ ≤ radius; math.inf: never
    # Decay rates of Adam's moments, and the constant added to the root of the second; None for plain SGD.
    moments: tuple[float, float, float] | None = None

    @property
    def models(self) -> int:
        """Number of models that are trained together: the outputs of linear ones, or one network."""
        return self.objective.outputs if isinstance(self.objective, Linear) else 1

    @property
    def limit(self) -> float:
        """The kernel's clipping norm, for which real norms are at most `clip`."""
        return self.clip * SHRINK

    @cached_property
    def text(self) -> bytes:
        """The training as JSON."""
        return json.dumps(
            {
                "objective": self.objective.as_data(),
                "schedule": [self.schedule.code, *self.schedule.parameters],
                "noise": [self.noise.law, self.noise.steps, self.noise.grid],
                "numbers": [self.divisor, self.rows_per_update, self.regularisation, self.clip, self.radius],
                "moments": self.moments,
            }
        ).encode()


@lru_cache(maxsize=8)
def _training(text: bytes) -> NoisyTraining:
    data = json.loads(text)
    divisor, rows_per_update, regularisation, clip, radius = data["numbers"]
    if not is_whole(rows_per_update) or rows_per_update < 1:
        raise ValueError(f"rows_per_update = {rows_per_update!r} must be a whole number, at least 1")
    code, *parameters = data["schedule"]
    return NoisyTraining(
        objective_from(json.dumps(data["objective"])),
        schedule_with(code, tuple(parameters)),
        divisor,
        rows_per_update,
        regularisation,
        clip,
        UpdateNoise(*data["noise"]),
        radius,
        tuple(data["moments"]) if data["moments"] else None,
    )


@dataclass
class NoisyState:
    """The state between two transitions; model and gradient have shape (P,)."""

    training: NoisyTraining
    model: np.ndarray
    # gradient, rest: the sum of the unfinished mini-batch's clipped gradients, and what the additions to it have lost.
    gradient: np.ndarray
    rest: np.ndarray
    # Adam's two moments, shape (2, P), or (0, P).
    averages: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    filled: int = 0  # rows in the unfinished mini-batch
    updates: int = 0  # updates so far

    @classmethod
    def initial(cls, training: NoisyTraining) -> "NoisyState":
        """Return the state before the first row."""
        model = training.objective.initial()
        averages = np.zeros((2 if training.moments else 0, len(model)))
        return cls(training, model, np.zeros(len(model)), np.zeros(len(model)), averages)

    def encode(self) -> bytes:
        """Return the state as bytes."""
        text = self.training.text
        header = _HEADER.pack(_MAGIC, len(text), self.filled, self.updates)
        vectors = self.model, self.gradient, self.rest, self.averages
        return b"".join((header, text, *(vector.tobytes() for vector in vectors)))

    @classmethod
    def decode(cls, value: bytes) -> "NoisyState":
        """Return the state that `encode` wrote."""
        if len(value) < _HEADER.size or value[:4] != _MAGIC:
            raise ValueError(f"{len(value)} bytes are not a state of dbdp_internal.noisy_steps; start with a new one")
        _, length, filled, updates = _HEADER.unpack_from(value)
        begin = _HEADER.size + length
        try:
            training = _training(bytes(value[_HEADER.size : begin]))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError("the state of dbdp_internal.noisy_steps is damaged; start with a new one") from error
        parameters = training.objective.parameters
        count = 5 if training.moments else 3
        sound = updates >= 0 and 0 <= filled < training.rows_per_update
        if len(value) != begin + 8 * parameters * count or not sound:
            raise ValueError("the state of dbdp_internal.noisy_steps is damaged; start with a new one")
        vectors = np.frombuffer(value, "<f8", count * parameters, begin).copy().reshape(count, parameters)
        return cls(training, vectors[0], vectors[1], vectors[2], vectors[3:], filled, updates)


def transition(state: NoisyState, rows: np.ndarray, *, draw: Draw, ends: np.ndarray | None = None) -> NoisyState:
    """Advance the state by packed rows: one noisy update for each mini-batch that ends within them."""
    if ends is None:
        size = state.training.rows_per_update
        ends = np.arange(size - state.filled, len(rows) + 1, size)
        state.filled = (state.filled + len(rows)) % size
    return _through(state, rows, ends, draw)


def _through(state: NoisyState, rows: np.ndarray, ends: np.ndarray, draw: Draw) -> NoisyState:
    """Advance the state by rows, some after which a mini-batch ends; the noise of some updates is drawn at a time."""
    begin, at_once = 0, max(1, _DRAWN // len(state.model))
    for first in range(0, max(1, len(ends)), at_once):
        taken = np.ascontiguousarray(ends[first : first + at_once], np.int64)
        last = len(rows) if first + at_once >= len(ends) else int(taken[-1])
        _updates(state, rows[begin:last], taken - begin, draw)
        begin = last
    return state


def terminate(state: NoisyState, *, draw: Draw) -> NoisyState:
    """End a scan: update with a last, short mini-batch, divided as all others are (privacy.md §5)."""
    if state.filled:
        _updates(state, np.zeros((0, 8), np.float32), np.zeros(1, np.int64), draw)
        state.filled = 0
    return state


def _updates(state: NoisyState, rows: np.ndarray, ends: np.ndarray, draw: Draw) -> None:
    how = state.training
    step_sizes = how.schedule.step_sizes(state.updates + 1, len(ends))
    noise = np.zeros((0, len(state.model)), np.int64)
    if len(ends):
        noise = draw(how.noise.law, how.noise.steps, len(ends), len(state.model))
    _advance(state, rows, ends, step_sizes, noise)
    state.updates += len(ends)


@flushed
def _advance(state: NoisyState, rows: np.ndarray, ends: np.ndarray, step_sizes: np.ndarray, noise: np.ndarray) -> None:
    """Add rows to the mini-batches, by the compiled kernel if it knows the objective."""
    objective = state.training.objective
    fits = isinstance(objective, Linear) and objective.outputs == 1 and rows.shape[1] > len(state.model)
    advance = kernels.compiled.noisy_updates if fits else updates_of_any
    advance(state, rows, ends, step_sizes, noise)


def updates_of_any(
    state: NoisyState, rows: np.ndarray, ends: np.ndarray, step_sizes: np.ndarray, noise: np.ndarray
) -> None:
    """Add rows to the mini-batches of any objective, and update at the end of each, in place."""
    how, begin = state.training, 0
    for number, end in enumerate(ends):
        _add(state, rows[begin:end])
        noisy = (np.rint((state.gradient + state.rest) / how.noise.grid) + noise[number]) * how.noise.grid
        _move(state, noisy, step_sizes[number], state.updates + number + 1)
        state.gradient[:] = state.rest[:] = 0.0
        begin = end
    _add(state, rows[begin:])


def _add(state: NoisyState, rows: np.ndarray) -> None:
    """Add the rows' clipped gradients to the sum in two parts."""
    if len(rows):
        added = state.training.objective.gradient_sum(state.model, rows, clip=state.training.clip)
        state.gradient, state.rest = with_part(np.stack([state.gradient, state.rest]), added)


def _move(state: NoisyState, noisy: np.ndarray, step: float, update: int) -> None:
    """Set model ← Π(model - step · direction), with the direction of SGD or Adam (Kingma & Ba 2015)."""
    how = state.training
    if how.moments is None:
        state.model *= 1.0 - step * how.regularisation
        state.model -= (step / how.divisor) * noisy
    else:
        state.model -= step * _adam(state, noisy / how.divisor + how.regularisation * state.model, update)
    if how.radius < math.inf:
        models = state.model.reshape(how.models, -1)
        models *= how.radius / np.maximum(np.sqrt(np.einsum("ij,ij->i", models, models)), how.radius)[:, None]


def _adam(state: NoisyState, gradient: np.ndarray, update: int) -> np.ndarray:
    decay1, decay2, floor = state.training.moments or (0.0, 0.0, 0.0)
    first, second = state.averages
    first += (1.0 - decay1) * (gradient - first)
    second += (1.0 - decay2) * (gradient**2 - second)
    corrected: Any = second / (1.0 - decay2**update)
    return first / (1.0 - decay1**update) / (np.sqrt(corrected) + floor)
