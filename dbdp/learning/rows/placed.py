"""Packed rows in places: one number for each column, from which the kernels know all its coordinates.

A number t in the place of a block with some cells stands for the part 1 - f of cell k and f of cell k + 1, k + f = t,
which are exact as t is a multiple of `FINEST`. The cells of a curve are its knots, at two of which its coordinates are
not 0. A category has its number, and one above all of them if it is none. An indicator has its share of the way from
its lower to its upper coordinate. The first place is 1, and 0 in a zero row, which has no part of any cell, so that its
coordinates are 0. Sums over rows are sums over cells first, and a public map makes coordinates of them: `of_rows`.

Shapes: rows (n, stride) float32 as in `blocks`; d coordinates, and the constant is the last of them.
"""

from functools import lru_cache

import numpy as np

from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import flushed
from dbdp.learning.rows import blocks
from dbdp.learning.rows.column_blocks import RowBlocks

FINEST = 2.0**-20  # all places are multiples of it, so that the parts of both cells are exact
STEP = 128  # whole numbers that a row's length may have: products of 1,024 rows are exact in float32
_PIECE = 1024


@lru_cache(maxsize=8)
def layout_of(rows_of: RowBlocks) -> kernels.compiled.PlacedLayout:
    """Return the layout of rows for the compiled kernels."""
    return kernels.compiled.PlacedLayout(np.array(rows_of.sizes), blocks.stride_of(rows_of.places))


@flushed
def scores(models: np.ndarray, rows: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return the scores (n, K) of linear models (K, d): a row's depend on it and the models only, to the last bit."""
    return layout_of(rows_of).scores(of_cells(models, rows_of), rows)


def of_cells(matrix: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return Mx of a row in each cell, shape (m, Σ cells), for M = `matrix` (m, d)."""
    places, heights = rows_of.coordinates
    return np.take(matrix, places, axis=1) * heights


def of_rows(cells: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return the coordinates (d,) of sums over rows of their parts of each cell, and of the next one, (Σ cells, 2)."""
    places, heights = rows_of.coordinates
    return np.bincount(places, heights * (cells[:, 0] + np.roll(cells[:, 1], 1)), rows_of.dimension)


@flushed
def lengths(rows: np.ndarray, factors: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return an upper bound on ‖Mx‖ of each row's coordinates x, shape (n,), float32.

    M = W - UᵀV, and `factors` are W (d, d), U and V (r, d), one below the other. W may have a few coordinates for each
    column: with M itself the work would be that of all of them.

    Proof. Let f = ‖W‖_F + ‖U‖_F‖V‖_F. A cell's coordinates err by γ_1, as one coordinate x is not 0 in it or the
    constant, those of a row by γ_2F, the products by γ_{r+1}: in all by γ_{2F+r+8}(|W| + |U|ᵀ|V|)|x|, in norm by
    (4d + 8)u·f, as ‖x‖ ≤ 1, r ≤ d and 2F ≤ 2d. The norm errs by (d + 8)u of itself, and the cast by 2⁻²⁴. ∎
    """
    dimension = factors.shape[1]
    direct, left, right = np.split(factors, [dimension, (dimension + len(factors)) // 2])
    size = np.linalg.norm(direct) + np.linalg.norm(left) * np.linalg.norm(right)
    cells, less = _table(direct, rows_of), _table(right, rows_of)
    turned = np.zeros((less.shape[1], cells.shape[1]))
    turned[: len(left), :dimension] = left
    found = layout_of(rows_of).lengths(cells, _ranges(cells, rows_of), less, _ranges(less, rows_of), turned, rows)
    return ((found + (8 * dimension + 16) * 2.0**-53 * size) * (1 + 2.0**-20)).astype(np.float32)


@flushed
def moment_of_steps(rows: np.ndarray, matrix: np.ndarray, rows_of: RowBlocks, length: float) -> np.ndarray:
    """Return Σ qqᵀ over the rows, (a, a), int64: q is Mx·STEP/length in whole numbers, cut to ‖q‖ ≤ STEP; M is (a, d).

    Proof of ‖q‖ ≤ STEP. Before it is rounded q is cut to STEP - √a/2 - 2⁻²⁰, and rounding moves it by √a/2 at most;
    the computed norm errs by (a + 8)u of itself. A sum of 1,024 products is at most 2²⁴ (Cauchy-Schwarz), and so are
    its parts: float32 has them exactly, in any order. ∎
    """
    count, cells = len(matrix), _table(matrix * (STEP / length), rows_of)
    ranges, most = _ranges(cells, rows_of), STEP - np.sqrt(count) / 2 - 2.0**-20
    layout, total = layout_of(rows_of), np.zeros((count, count))
    steps, product = np.empty((_PIECE, cells.shape[1]), np.float32), np.empty((count, count), np.float32)
    for first in range(0, len(rows), _PIECE):
        piece = rows[first : first + _PIECE]
        layout.steps(cells, ranges, piece, most, steps)
        own = steps[: len(piece), :count]
        total += np.matmul(own.T, own, out=product)
    return total.astype(np.int64)


def _table(matrix: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return the coordinates Mx of each cell, (cells, width): those of M (m, d), and zeros up to whole lanes."""
    width = max(1, -(-len(matrix) // blocks.LANES)) * blocks.LANES
    cells = np.zeros((sum(rows_of.sizes), width))
    cells[:, : len(matrix)] = of_cells(matrix, rows_of).T
    return cells


def _ranges(cells: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return between which coordinates the cells (cells, width) of each place are not 0, in lanes: (2, places)."""
    ranges = np.zeros((2, rows_of.places), np.intc)
    for place, of_place in enumerate(np.split(cells, np.cumsum(rows_of.sizes)[:-1])):
        found = np.flatnonzero(of_place.any(axis=0)) // blocks.LANES
        if len(found):
            ranges[:, place] = found[0] * blocks.LANES, (found[-1] + 1) * blocks.LANES
    return ranges
