"""Second moments of packed rows, without and with their labels, and lengths of rows in other coordinates.

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
    """
    total = np.zeros((dimension + labels, dimension + labels))
    for piece in _pieces(len(rows)):
        features, packed, _ = kernels.unpacked(rows[piece], dimension)
        coordinates = np.clip(packed, -1, 1)[:, None] if labels == 1 else packed[:, None] == np.arange(1, labels + 1)
        joint = np.hstack([features, (weight * coordinates).astype(np.float32)])
        total += joint.T @ joint
    return total


@flushed
def lengths(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return an upper bound on ‖Mx‖ of each row's features x, shape (n,), float32.

    Proof. |fl(Mx) - Mx| ≤ γ_d|M||x| in any order, in norm ≤ γ_d·‖M‖_F·‖x‖ ≤ 1.01d√d·u < 2⁻³⁰ for d ≤ 2048, as
    ‖M‖_F ≤ √d and ‖x‖ ≤ 1. The norm errs by (d + 8)u of itself and the cast to float32 by 2⁻²⁴, less than 2⁻²⁰. ∎

    M = `matrix` has the shape (d, d). Raise ValueError if ‖M‖_F > √d, where the bound would not hold.
    """
    size = np.sqrt(np.einsum("ij,ij->", matrix, matrix))
    if not size <= np.sqrt(len(matrix)):
        raise ValueError(f"a matrix of norm {size} is above √{len(matrix)}, the limit; divide it by its norm first")
    bounds = np.empty(len(rows), np.float32)
    for piece in _pieces(len(rows)):
        features, _, _ = kernels.unpacked(rows[piece], len(matrix))
        moved = features @ matrix.T
        bounds[piece] = (np.sqrt(np.einsum("ij,ij->i", moved, moved)) + 2.0**-30) * (1 + 2.0**-20)
    return bounds


def _pieces(count: int) -> Iterator[slice]:
    """Yield slices of so many rows.

    The C library returns memory to the system once twice as much is free as the largest block ever freed; every
    array would then wait for its pages. So one large block is freed first.
    """
    np.empty(_MEMORY, np.uint8)
    return (slice(first, first + _PIECE) for first in range(0, count, _PIECE))
