"""Sums over rows in the coordinates of `products`, as tallies of whole numbers: gradients, moments, and losses.

What a row adds depends on that row only, and no value of it raises an error. Shapes: coordinates (p, n), labels (n,),
NaN for a row without one.
"""

from dataclasses import dataclass

import numpy as np

from dbdp.learning.compiled.arithmetic import flushed
from dbdp.learning.losses import loss_with
from dbdp.learning.rows.placed import STEP

PARTS = 1 << 32  # of a clip, in a sum of gradients
SHORTEST = 2.0**-6  # of a row's length, as which its length after shortening counts at least
MOST_SUMMED = 1 << 24  # rows whose sum of gradients an int64 holds
LOSS_STEPS = 1 << 30  # of a limit, in a sum of losses
_PIECE = 1024  # rows
_ABOVE = 1 + 2.0**-20  # more than the rounding of a length
_RESIDUE = 2.0**-30  # of a squared length: more than the rounding of a difference of squares


@dataclass(frozen=True)
class ProductGradient:
    """Σ gz/clip over the rows in 1/PARTS, of the coordinates from `first` on, for the slope g at a model's score.

    With the matrix V, g is clipped so that |g|·√(‖z‖² - ‖Vz‖²) is at most `clip`: that is the length of gWz for
    W² = I - VᵀV. Vectors are the model (p,), then V, one row after the other.
    """

    clip: float
    first: int
    loss: int
    parameters: tuple[float, float]

    @flushed
    def __call__(self, vectors: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (p - first,), int64."""
        model, *steep = vectors.reshape(-1, len(rows))
        scores, own, present = (model[:, None] * rows).sum(axis=0), rows[self.first :], ~np.isnan(labels)
        squares = whole = (own * own).sum(axis=0)
        for direction in steep:
            squares = squares - np.square((direction[self.first :, None] * own).sum(axis=0))
        lengths = np.sqrt(np.maximum(squares + _RESIDUE * whole, SHORTEST**2 * whole)) * _ABOVE
        slopes = loss_with(self.loss, (self.parameters[0], self.parameters[1])).derivative(
            scores, np.nan_to_num(labels)
        )
        most = self.clip / np.maximum(lengths, np.finfo(float).tiny)
        factors = np.where(present, np.nan_to_num(np.clip(slopes, -most, most)), 0.0)
        return np.rint(own @ factors * (PARTS / self.clip)).astype(np.int64)


@dataclass(frozen=True)
class ProductMoment:
    """Σ qqᵀ over the rows, q = z·STEP/length in whole numbers, each cut to STEP: diagonal, then what is above it.

    Proof that sums are exact: that of `placed.moment_of_steps`, for pieces of 1,024 rows. ∎
    """

    length: float

    @flushed
    def __call__(self, _vectors: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally, p(p + 1)/2 numbers, int64."""
        steps, most = rows * (STEP / self.length), STEP - np.sqrt(len(rows)) / 2 - 2.0**-20
        norms = np.sqrt((steps * steps).sum(axis=0)) * _ABOVE
        steps *= np.where(np.isnan(labels), 0.0, np.minimum(1.0, most / np.maximum(norms, np.finfo(float).tiny)))
        whole = np.rint(steps).astype(np.float32)
        total = (whole @ whole.T).astype(np.int64)
        return np.concatenate([np.diagonal(total), total[np.triu_indices(len(total), 1)]])


@dataclass(frozen=True)
class LossGap:
    """Σ of a row's loss by the first model less that by the second, in 1/LOSS_STEPS of `limit`, to which it is clipped.

    Scores s of a model count as a + bs, with its offset a and slope b; those of a number within its bounds.
    """

    limit: float
    offsets: tuple[float, float]
    slopes: tuple[float, float]
    is_number: bool

    @flushed
    def __call__(self, vectors: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (1,), int64."""
        present, true = ~np.isnan(labels), np.nan_to_num(labels)
        losses = []
        for model, offset, slope in zip(vectors.reshape(2, -1), self.offsets, self.slopes, strict=True):
            scores = offset + slope * (model[:, None] * rows).sum(axis=0)
            own = np.square(np.clip(scores, -1.0, 1.0) - true) if self.is_number else np.logaddexp(0.0, -true * scores)
            losses.append(own)
        gaps = np.clip(np.nan_to_num(losses[0] - losses[1]) / self.limit, -1.0, 1.0)
        return np.array([np.where(present, np.rint(gaps * LOSS_STEPS), 0.0).astype(np.int64).sum()])


ProductTally = ProductGradient | ProductMoment | LossGap


def pieces(rows: np.ndarray) -> list[slice]:
    """Return slices of rows, a public number each, whose coordinates take little memory; one for no rows."""
    return [slice(first, first + _PIECE) for first in range(0, max(len(rows), 1), _PIECE)]
