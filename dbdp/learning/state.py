"""The state of the training aggregate, and its encoding as bytes.

It holds what the next transition needs: the model, the sum of gradients of the unfinished
mini-batch in two parts, the sum of iterates if they are averaged, the number of updates, and the
constants of the training.
"""

import math
import struct
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dbdp.learning.losses import Loss, loss_with
from dbdp.learning.schedules import NONE, Averaging, Schedule, schedule_with

# magic, loss, schedule | d, b, first, interval, target, filled, updates, counted | λ, radius, loss's 2, schedule's 3
_HEADER = struct.Struct("<4sBBxx8q7d")
_MAGIC = b"dbs3"


@dataclass
class State:
    """The state between two transitions; model and gradient have shape (d,), float64."""

    loss: Loss
    schedule: Schedule
    batch_size: int
    regularisation: float
    model: np.ndarray
    gradient: np.ndarray
    averaging: Averaging = NONE
    radius: float = math.inf  # after every update the model is projected onto ‖w‖₂ ≤ radius; math.inf: never
    target: int = 0  # 0 uses labels as they are; c ≥ 1 is one class against the rest: label c is +1, any other -1
    # Sum of iterates since the last restart, shape (d,), or (0,) where none are averaged.
    total: np.ndarray = field(default_factory=lambda: np.zeros(0))
    counted: int = 0  # iterates in `total`
    filled: int = 0  # rows in the unfinished mini-batch
    updates: int = 0  # updates so far, over all epochs
    # What the additions to `gradient` have lost, shape (d,): the sum is gradient + rest.
    rest: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def initial(
        cls,
        *,
        loss: Loss,
        schedule: Schedule,
        batch_size: int,
        regularisation: float,
        dimension: int,
        averaging: Averaging = NONE,
        radius: float = math.inf,
        target: int = 0,
    ) -> "State":
        """Return the state before the first row: the zero model."""
        model, gradient, rest = np.zeros((3, dimension))
        total = np.zeros(dimension if averaging.first else 0)
        return cls(
            loss, schedule, batch_size, regularisation, model, gradient, averaging, radius, target, total, rest=rest
        )

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model."""
        return len(self.model)

    def result(self) -> np.ndarray:
        """Return the trained model, shape (d,): the mean of the summed iterates, if there are any, else the last.

        With restarts it is the last one, which every restart has replaced by the mean.
        """
        averaged = self.averaging.first and not self.averaging.interval and self.counted
        return self.total / self.counted if averaged else self.model

    def encode(self) -> bytes:
        """Return the state as bytes."""
        header = _HEADER.pack(
            _MAGIC,
            self.loss.code,
            self.schedule.code,
            self.dimension,
            self.batch_size,
            self.averaging.first,
            self.averaging.interval,
            self.target,
            self.filled,
            self.updates,
            self.counted,
            self.regularisation,
            self.radius,
            *self.loss.parameters,
            *self.schedule.parameters,
        )
        vectors = self.model, self.gradient, self.rest, self.total
        return b"".join((header, *(vector.tobytes() for vector in vectors)))

    @classmethod
    def decode_each(cls, value: bytes) -> list["State"]:
        """Return the states of several models, whose bytes follow one another and are equally many."""
        length = max(1, len(value))
        if length >= _HEADER.size:
            _, _, _, dimension, _, first, *_ = _HEADER.unpack_from(value)
            length = max(1, _HEADER.size + 8 * dimension * (4 if first else 3))
        states = [cls.decode(value[begin : begin + length]) for begin in range(0, max(1, len(value)), length)]
        if len({state.dimension for state in states}) > 1:
            raise ValueError("the states of dbdp_internal.sgd_epoch differ in their dimensions; start with new ones")
        return states

    @classmethod
    def decode(cls, value: bytes) -> "State":
        """Return the state that `encode` wrote."""
        if len(value) < _HEADER.size or value[:4] != _MAGIC:
            raise ValueError(f"{len(value)} bytes are not a state of dbdp_internal.sgd_epoch; start with a new one")
        _, loss, schedule, *numbers = _HEADER.unpack_from(value)
        dimension, batch_size, first, interval, target, filled, updates, counted = numbers[:8]
        regularisation, radius, *parameters = numbers[8:]
        sound = dimension > 0 and 0 <= filled < batch_size and 0 <= counted <= updates and target >= 0 and radius > 0
        size = dimension * (4 if first else 3)
        if not sound or len(value) != _HEADER.size + 8 * size:
            raise ValueError("the state of dbdp_internal.sgd_epoch is damaged; start with a new one")
        vectors = np.frombuffer(value, "<f8", size, _HEADER.size).copy()
        functions = _functions(loss, schedule, first, interval, *parameters)
        return cls(
            functions[0],
            functions[1],
            batch_size,
            regularisation,
            vectors[:dimension],
            vectors[dimension : 2 * dimension],
            functions[2],
            radius,
            target,
            vectors[3 * dimension :],
            counted,
            filled,
            updates,
            vectors[2 * dimension : 3 * dimension],
        )


@lru_cache(maxsize=64)
def _functions(
    loss: int, schedule: int, first: int, interval: int, *parameters: float
) -> tuple[Loss, Schedule, Averaging]:
    """Return what a header describes; a state is decoded for every block."""
    described = loss_with(loss, (parameters[0], parameters[1]))
    return described, schedule_with(schedule, (parameters[2], parameters[3], parameters[4])), Averaging(first, interval)
