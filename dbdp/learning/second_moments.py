"""Second moments of packed rows, without and with their labels, and rows in the coordinates of another basis.

Shapes: rows (n, stride) float32 as in `blocks`; matrices (d, d). What is not a packed row is the zero row.
"""

from collections.abc import Iterator

import numpy as np

from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import flushed

MOST_DIMENSION = 2048  # a matrix has 32 MiB and is one value of the server, as the state of an aggregate
_PIECE = 512  # rows at a time, which the processor's cache holds; a product of more is no faster
_MEMORY = 3 << 22  # bytes; see `_pieces`


@flushed
def second_moment(rows: np.ndarray, dimension: int) -> np.ndarray:
    """Return Σ xxᵀ over the rows' features x, shape (d, d)."""
    total = np.zeros((dimension, dimension))
    for piece in _pieces(len(rows)):
        features, _, _ = kernels.unpacked(rows[piece], dimension)
        total += features.T @ features
    return total


@flushed
def joint_moment(rows: np.ndarray, dimension: int, labels: int, weight: float) -> np.ndarray:
    """Return Σ zzᵀ over z = (x, weight·y), the rows' features and labels, shape (d + labels, d + labels).

    Every coordinate has 24 bits, so that the products are exact. With a `weight` of 24 bits, ‖z‖² ≤ 1 + weight².

    Parameters
    ----------
    labels : int
        Coordinates of a label: 1 is the number itself, which is in [-1, 1]; K has an indicator for each class 1, …, K.
    """
    total = np.zeros((dimension + labels, dimension + labels))
    for piece in _pieces(len(rows)):
        features, packed, _ = kernels.unpacked(rows[piece], dimension)
        coordinates = np.clip(packed, -1, 1)[:, None] if labels == 1 else packed[:, None] == np.arange(1, labels + 1)
        joint = np.hstack([features, (weight * coordinates).astype(np.float32)])
        total += joint.T @ joint
    return total


@flushed
def transformed(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return the rows with features Mx for x, and their labels, shape (n, stride).

    Each is a function of its own row and of M, and of its place, which neighbours share.

    Parameters
    ----------
    matrix : np.ndarray
        M, shape (d, d). A row that it makes longer than a packed row is read as the zero row from then on.
    """
    moved = np.zeros_like(rows)
    for piece in _pieces(len(rows)):
        features, labels, _ = kernels.unpacked(rows[piece], len(matrix))
        moved[piece, : len(matrix)] = features @ matrix.T
        moved[piece, -1] = labels
    return moved


def _pieces(count: int) -> Iterator[slice]:
    """Yield slices of so many rows.

    The C library returns memory to the system once twice as much is free as the largest block ever freed; every
    array would then wait for its pages. So one large block is freed first.
    """
    np.empty(_MEMORY, np.uint8)
    return (slice(first, first + _PIECE) for first in range(0, count, _PIECE))
