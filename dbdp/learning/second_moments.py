"""Second moments of packed rows, and rows in the coordinates of another basis.

Shapes: rows (n, stride) float32 as in `blocks`; matrices (d, d). What is not a packed row is the zero row.
"""

import numpy as np

from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import flushed

MOST_DIMENSION = 2048  # a matrix has 32 MiB and is one value of the server, as the state of an aggregate


@flushed
def second_moment(rows: np.ndarray, dimension: int) -> np.ndarray:
    """Return Σ xxᵀ over the rows' features x, shape (d, d)."""
    features, _, _ = kernels._unpacked(rows, dimension)
    return features.T @ features


@flushed
def transformed(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return the rows with features Mx for x, and their labels, shape (n, stride).

    Each is a function of its own row and of M, and of its place, which neighbours share.

    Parameters
    ----------
    matrix : np.ndarray
        M, shape (d, d). A row that it makes longer than a packed row is read as the zero row from then on.
    """
    features, labels, _ = kernels._unpacked(rows, len(matrix))
    moved = np.zeros_like(rows)
    moved[:, : len(matrix)] = features @ matrix.T
    moved[:, -1] = labels
    return moved
