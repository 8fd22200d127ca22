"""The aggregate's state: one value, one codec.

It holds what the next transition needs: the model, the sum of gradients of the unfinished
mini-batch, the number of updates made, and the constants of the training.
"""

import struct
from dataclasses import dataclass

import numpy as np

from dbdp.learning.losses import LOSSES, Logistic
from dbdp.learning.schedules import Schedule, schedule_with

_HEADER = struct.Struct("<4sBBxxqqqqddd")  # magic, loss, schedule, d, b, filled, updates, λ, parameters
_MAGIC = b"dbs1"
_LOSS_BY_CODE = {loss.code: loss for loss in LOSSES.values()}


@dataclass
class State:
    """What one transition hands to the next; model and gradient have shape (d,), float64."""

    loss: Logistic
    schedule: Schedule
    batch_size: int
    regularisation: float
    model: np.ndarray
    gradient: np.ndarray
    filled: int = 0  # rows in the unfinished mini-batch
    updates: int = 0  # updates made so far, over all epochs

    @classmethod
    def initial(
        cls, *, loss: Logistic, schedule: Schedule, batch_size: int, regularisation: float, dimension: int
    ) -> "State":
        """Return the state before the first row: the zero model."""
        zeros = np.zeros(dimension)
        return cls(loss, schedule, batch_size, regularisation, zeros, zeros.copy())

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model."""
        return len(self.model)

    def encode(self) -> bytes:
        """Return the state as bytes."""
        header = _HEADER.pack(
            _MAGIC,
            self.loss.code,
            self.schedule.code,
            self.dimension,
            self.batch_size,
            self.filled,
            self.updates,
            self.regularisation,
            *self.schedule.parameters,
        )
        return header + self.model.tobytes() + self.gradient.tobytes()

    @classmethod
    def decode(cls, value: bytes) -> "State":
        """Return the state that `encode` wrote.

        Raises
        ------
        ValueError
            If the bytes are no state.
        """
        if len(value) < _HEADER.size or value[:4] != _MAGIC:
            raise ValueError(f"{len(value)} bytes are not a state of dbdp.sgd_epoch; start with a new one")
        _, loss, schedule, dimension, batch_size, filled, updates, regularisation, *parameters = _HEADER.unpack_from(
            value
        )
        sound = loss in _LOSS_BY_CODE and dimension > 0 and 0 <= filled < batch_size and updates >= 0
        if not sound or len(value) != _HEADER.size + 16 * dimension:
            raise ValueError("the state of dbdp.sgd_epoch is damaged; start with a new one")
        vectors = np.frombuffer(value, "<f8", 2 * dimension, _HEADER.size).copy()
        return cls(
            _LOSS_BY_CODE[loss],
            schedule_with(schedule, tuple(parameters)),
            batch_size,
            regularisation,
            vectors[:dimension],
            vectors[dimension:],
            filled,
            updates,
        )
