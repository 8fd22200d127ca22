"""The second moment of rows in other coordinates, each cut to a length, as a tally of whole numbers."""

from dataclasses import dataclass

import numpy as np

from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import flushed

STEPS = 1 << 36  # per square of the length: a block's sum is rounded to a whole number of these
MOST_ROWS = 1 << 26  # whose sum an int64 holds


@dataclass(frozen=True)
class CutMoment:
    """Σ zzᵀ over the rows x in 1/STEPS, where z = Mx/length, and of length 1 where it is longer than that."""

    length: float
    coordinates: int  # the first rows of M; the others are not read

    @flushed
    def of_rows(self, matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the tally of packed rows (n, stride) for M = `matrix` (d, d), ‖M‖ ≤ 1: diagonal, then what is above.

        It is int64, of coordinates·(coordinates + 1)/2 numbers.
        """
        features, _, _ = kernels.unpacked(rows, len(matrix))
        moved = features @ matrix[: self.coordinates].T
        moved /= np.maximum(np.sqrt(np.einsum("ij,ij->i", moved, moved)), self.length)[:, None]
        total = np.rint(moved.T @ moved * STEPS).astype(np.int64)
        return np.concatenate([np.diagonal(total), total[np.triu_indices(self.coordinates, 1)]])
