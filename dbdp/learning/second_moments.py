"""Second moments of packed rows, without and with their labels, and lengths of rows in other coordinates.

Shapes: rows (n, stride) float32 as in `blocks`; matrices (d, d). What is not a packed row is the zero row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import flushed
from dbdp.learning.compiled.sums import outer_sum

MOST_DIMENSION = 2048  # a matrix has 32 MiB and is one value of the server, as the state of an aggregate
NARROW = 256  # coordinates; products of wider rows are too long for short sums
LONG = 512  # rows of which products are summed at once, of wide rows
STRIPS = 16  # of a wide matrix, which are computed independently
TOGETHER = 4 * LONG  # wide rows that are unpacked at a time
_TERMS = 512  # coordinates of which products are summed at once in float32

if np.finfo(np.longdouble).nmant < 63:
    raise ImportError("long double has less than 64 bits here, on which margins rely; run dbdp on 64-bit Linux")

# The C library returns memory to the system once twice as much is free as the largest block ever freed, and every array
# would then wait for its pages. So one large block is freed first.
np.empty(3 << 22, np.uint8)

Read = Callable[[slice], np.ndarray]  # the packed rows of a slice
Each = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]  # results of a task, computed in any order


@dataclass(frozen=True)
class SecondMoment:
    """Σ zzᵀ over z = (x, weight·y), the rows' features and labels; only x with `labels` = 0.

    Every coordinate has 24 bits, so that the products are exact. With a `weight` of 24 bits, ‖z‖² ≤ 1 + weight².
    """

    dimension: int
    labels: int = 0
    weight: float = 0.0

    @property
    def size(self) -> int:
        """The number of coordinates, d + labels."""
        return self.dimension + self.labels

    @flushed
    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return the sum over rows, (size, size): of narrow ones by `outer_sum`."""
        if self.size > NARROW:
            return self.in_strips(rows.__getitem__, len(rows), lambda task, given: list(map(task, given)))
        joint = self._joint(rows)
        return outer_sum(joint, joint)

    def in_strips(self, read: Read, count: int, each: Each) -> np.ndarray:
        """Return the same sum over `count` wide rows: of LONG products at a time, one after the other."""
        ends = (np.sqrt(np.arange(STRIPS + 1) / STRIPS) * self.size).round().astype(int)
        total = np.zeros((self.size, self.size))
        for first in range(0, count, TOGETHER):
            places = [slice(at, min(at + LONG, count)) for at in range(first, min(first + TOGETHER, count), LONG)]
            parts = each(lambda place: self._joint(read(place)), places)
            each(partial(_add_strip, total, parts), list(pairwise(ends)))
        lower = np.tril(total)
        return lower + np.tril(total, -1).T

    @flushed
    def _joint(self, rows: np.ndarray) -> np.ndarray:
        """Return z of each row, (n, size)."""
        features, packed, _ = kernels.unpacked(rows, self.dimension)
        if not self.labels:
            return features
        one = np.clip(packed, -1, 1)[:, None] if self.labels == 1 else packed[:, None] == np.arange(1, self.labels + 1)
        return np.hstack([features, (self.weight * one).astype(np.float32)])


def _add_strip(total: np.ndarray, parts: Sequence[np.ndarray], ends: tuple[int, int]) -> None:
    """Add Σ zzᵀ over the rows of each part to a strip of the lower triangle of a total."""
    begin, end = ends
    for part in parts:
        total[begin:end, :end] += part[:, begin:end].T @ part[:, :end]


class OtherCoordinates:
    """Models and sums of gradients of rows Mx, by those of the rows x themselves; M = `matrix` (d, d)."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix
        self._wide = matrix.T.astype(np.longdouble)

    def models(self, model: np.ndarray) -> np.ndarray:
        """Return the models (K, d) with the same scores: ⟨w, Mx⟩ = ⟨Mᵀw, x⟩."""
        return model.reshape(-1, len(self.matrix)) @ self.matrix

    def gradients(self, sums: np.ndarray) -> np.ndarray:
        """Return Σc ⊗ Mx, shape (P,), of Σc ⊗ x, (K, d), to numbers of 53 bits from sums of at least 64."""
        return (sums.reshape(-1, len(self.matrix)).astype(np.longdouble) @ self._wide).ravel().astype(np.float64)


def lengths_by(matrix: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of rows (n, stride): an upper bound on ‖Mx‖ of each, (n,), float32, computed in float32.

    Proof. Let v = 2⁻²⁴ and k = min(d, _TERMS) + ⌈d/_TERMS⌉. M is rounded by v, and a coordinate's sum errs by γ_k, in
    any order within _TERMS terms: fl(Mx) - Mx is at most 1.01(k + 1)v|M||x|, in norm √(‖M‖₁‖M‖_∞) times that, as
    ‖x‖ ≤ 1 (Higham 2002, chapters 3 and 6), plus 2⁻¹⁰⁰ for numbers below 2⁻¹²⁶. The norm errs by (d + 8)v of itself.
    The last operations err by 2⁻²² at most. ∎ A row of norm above 1, or with NaN, counts nowhere.

    M = `matrix` has the shape (d, d). Raise ValueError if ‖M‖_F > √d.
    """
    dimension = len(matrix)
    size = np.sqrt(np.einsum("ij,ij->", matrix, matrix))
    if not size <= np.sqrt(dimension):
        raise ValueError(f"a matrix of norm {size} is above √{dimension}, the limit; divide it by its norm first")
    sizes = np.abs(matrix)
    norm = math.sqrt(sizes.sum(axis=0).max() * sizes.sum(axis=1).max())
    error = 1.01 * 2.0**-24 * (min(dimension, _TERMS) + dimension // _TERMS + 2) * norm + 2.0**-100
    narrow, own = np.ascontiguousarray(matrix.T, np.float32), 1 + (dimension + 8) * 2.0**-24

    @flushed
    def lengths(rows: np.ndarray) -> np.ndarray:
        bounds = np.empty(len(rows), np.float32)
        for first in range(0, len(rows), LONG):
            moved = _product(rows[first : first + LONG, :dimension], narrow)
            found = np.sqrt(np.einsum("ij,ij->i", moved, moved).astype(np.float64))
            bounds[first : first + LONG] = np.fmin((found * own + error) * (1 + 2.0**-22), 2 * size)
        return bounds

    return lengths


def _product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return rows (n, d) times a matrix (d, d), summed over _TERMS coordinates at a time."""
    moved = rows[:, :_TERMS] @ matrix[:_TERMS]
    for first in range(_TERMS, len(matrix), _TERMS):
        moved += rows[:, first : first + _TERMS] @ matrix[first : first + _TERMS]
    return moved
